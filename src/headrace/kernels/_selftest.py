# SPDX-License-Identifier: Apache-2.0
"""The self-test of a device: decode small images of every kind and compare all pixels.

The images have every kind of tile in every dtype and mode, with and without ranks. The expected pixels are those that
were encoded, converted on the CPU. The test compiles, loads and launches every kernel in the variants that a loader
needs, so it is also the warm-up: no later launch compiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from headrace.codec import encode
from headrace.kernels._decode import decode_batch
from headrace.kernels._output import factors_of, output_dtype
from headrace.kernels._resize import ResizeWindow, resize_batch
from headrace.kernels.backend import has_triton
from headrace.kernels.finish.reference import convert_levels
from headrace.kernels.tables import SampleType

_SHAPE = (37, 70, 3)  # two rows of tiles; not a multiple of tiles, blocks or groups
_MODES: tuple[Literal["fast"], Literal["dense"]] = ("fast", "dense")
_LEVELS = {"uint8": 255, "uint16": 65535, "int16": 32767}
CONTENTS = ("flat", "noise", "few colors", "smooth", "ramps")
_MEAN, _STD = (0.45, 0.4, 0.5), (0.2, 0.25, 0.3)


@dataclass(frozen=True)
class DeviceUse:
    """The dtypes that a loader needs on a device. Each combination is a variant of the kernels."""

    stored: frozenset[str]
    """Dtypes of the stored images."""
    decoded: frozenset[str | None]
    """Dtypes that images are decoded to; None is the stored one."""
    resized: frozenset[str | None]
    """Dtypes of resized images; empty if no images are resized."""


@cache
def reason_against_device(device: torch.device, use: DeviceUse) -> str | None:
    """Return why a device must not decode, or None if it decoded every test image correctly.

    The result is kept for each device and use. The first call waits for the device, and takes seconds if Triton has not
    compiled the kernels before.
    """
    if not has_triton():
        return "Triton is not installed: pip install 'headrace[gpu]'"
    return self_test(device, use)


def self_test(device: torch.device, use: DeviceUse) -> str | None:
    """Decode and resize test images on a device; return what went wrong, or None if every pixel is right."""
    try:
        for stored in sorted(use.stored):
            for made in use.decoded:
                for contents, sparse in _batches(stored):
                    _check_decoding(device, stored, made, contents, sparse=sparse)
            for made in use.resized:
                _check_resizing(device, stored, made)
    except _WrongPixels as wrong:
        return str(wrong)
    except Exception as error:  # noqa: BLE001 - any error of a driver or compiler is a reason
        first_line = next(iter(str(error).splitlines()), "")
        return f"the self-test on {device} failed with {type(error).__name__}: {first_line}"
    return None


def _batches(stored: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield contents and whether levels are sparse: without ranks, with ranks, and 16-bit images with 8-bit ranks."""
    yield ("noise", "smooth"), False
    yield CONTENTS, False
    if stored != "uint8":
        yield CONTENTS, True


class _WrongPixels(Exception):
    """A test image has wrong pixels."""


def _check_decoding(
    device: torch.device, stored: str, made: str | None, contents: Sequence[str], *, sparse: bool
) -> None:
    pictures = [picture(content, stored, sparse=sparse) for content in contents]
    datas = [encode(pixels, mode=mode) for pixels in pictures for mode in _MODES]
    dtype = output_dtype(made, {getattr(torch, stored)}, normalized=False)
    normalised = {"mean": _MEAN, "std": _STD} if dtype.is_floating_point else {}
    found = decode_batch(datas, device=device, dtype=dtype, **normalised)  # type: ignore[arg-type]
    for number, image in enumerate(found):
        if not torch.equal(_bits(image.cpu()), _bits(_converted(pictures[number // 2], dtype))):
            raise _WrongPixels(
                f"the self-test on {device} decoded wrong pixels: {contents[number // 2]}, "
                f"{stored} to {made or stored}, mode {_MODES[number % 2]}"
            )


def _check_resizing(device: torch.device, stored: str, made: str | None) -> None:
    image = torch.from_numpy(picture("smooth", stored, sparse=False).transpose(2, 0, 1).copy())
    resize = ResizeWindow(_SHAPE[:2], (24, 40), begin=(1, 2), count=(20, 33))
    dtype = output_dtype(made, {image.dtype}, normalized=False)
    found, expected = (
        resize_batch([image.to(place)], [resize], dtype=dtype, flips=[True]).cpu().double()
        for place in (device, torch.device("cpu"))
    )
    # The order of sums differs, so a level may differ by one; float16 adds an error of up to 1/2048.
    level = 1 / _LEVELS[stored] if dtype.is_floating_point else max(1, _LEVELS[str(dtype)[6:]] / _LEVELS[stored])
    if float((found - expected).abs().max()) > 1.01 * level + (dtype == torch.float16) / 1024:
        raise _WrongPixels(f"the self-test on {device} resized to wrong pixels: {stored} to {made or stored}")


def _converted(pixels: npt.NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """Return the expected output for pixels [H, W, C], as [C, H, W]."""
    levels = torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.int64))
    factors = torch.from_numpy(np.array(factors_of(_MEAN, _STD)))
    return convert_levels(levels, SampleType[str(pixels.dtype).upper()], factors, dtype)


def picture(content: str, stored: str, *, sparse: bool) -> npt.NDArray[Any]:
    """Return pixels that are encoded as constant, raw, palette, and packed or coded tiles; sparse levels get ranks."""
    rng = np.random.default_rng(18)
    top = 255 if stored == "uint8" else 65535
    if content == "flat":
        levels = np.broadcast_to(rng.integers(0, top + 1, 3), _SHAPE)
    elif content == "noise":
        levels = rng.integers(0, top + 1, _SHAPE)
    elif content == "few colors":
        cells = rng.integers(0, 5, (8, 12)).repeat(5, 0).repeat(6, 1)[: _SHAPE[0], : _SHAPE[1]]
        levels = rng.integers(0, top + 1, (5, 3))[cells]
    elif content == "ramps":  # selects other predictors than smooth pictures
        y, x, c = np.ogrid[: _SHAPE[0], : _SHAPE[1], :3]
        levels = (3 * x + 2 * y + 50 * c) % 251 * (top // 255)
    else:
        y, x, c = np.ogrid[: _SHAPE[0], : _SHAPE[1], :3]
        wave = 0.5 + 0.3 * np.sin(y / 9 + c) + 0.15 * np.cos(x / 13)
        levels = (wave * top + rng.normal(0, top / 200, _SHAPE)).clip(0, top).astype(np.int64)
    if sparse:
        levels = levels // 301 * 301
    shifted = levels - 32768 if stored == "int16" else levels
    pixels: npt.NDArray[Any] = shifted.astype(stored)
    return pixels


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes: PyTorch cannot compare uint16, and floats must be equal bit by bit."""
    return tensor.contiguous().view(torch.uint8)
