# SPDX-License-Identifier: Apache-2.0
"""A device proves itself before it is trusted: it decodes small images of every kind, and all pixels are compared.

The images have every kind of tile in every dtype and mode, with and without ranks. Expected are the pixels that were
encoded, converted on the CPU. Because every kernel is compiled, loaded and launched in
the variants that a loader needs, this is also the warm-up: no later launch compiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from headrace.codec import encode
from headrace.kernels._decode import decode_batch
from headrace.kernels._output import factors_of, output_dtype
from headrace.kernels._resize import resize_batch
from headrace.kernels.backend import has_triton
from headrace.kernels.finish.reference import convert_levels
from headrace.kernels.resize._windows import ResizeWindow
from headrace.kernels.tables import SampleType

_SHAPE = (37, 70, 3)  # two rows of tiles; fills neither tiles nor blocks nor groups
_MODES: tuple[Literal["fast"], Literal["dense"]] = ("fast", "dense")
_LEVELS = {"uint8": 255, "uint16": 65535, "int16": 32767}
CONTENTS = ("flat", "noise", "few colours", "smooth", "ramps")
_MEAN, _STD = (0.45, 0.4, 0.5), (0.2, 0.25, 0.3)


@dataclass(frozen=True)
class DeviceUse:
    """What a device is asked for. Each combination is a variant of the kernels."""

    stored: frozenset[str]
    """The dtypes of the images in their files."""
    decoded: frozenset[str | None]
    """The dtypes that images are decoded to; None is the stored one."""
    resized: frozenset[str | None]
    """The dtypes that resized images come out in; empty if none are resized."""


def reason_against_device(device: torch.device, use: DeviceUse) -> str | None:
    """Say why a device must not decode; None if it decoded every test image right.

    The result is kept for each device, version of Triton and use. The first call takes seconds where Triton has not
    compiled the kernels before, and waits for the device.
    """
    if not has_triton():
        return "Triton is not installed: pip install 'headrace[gpu]'"
    return _tested(device, version("triton"), use)


@cache
def _tested(device: torch.device, _version: str, use: DeviceUse) -> str | None:
    return self_test(device, use)


def self_test(device: torch.device, use: DeviceUse) -> str | None:
    """Decode and resize test images on a device; give what went wrong, None if every pixel is right."""
    try:
        for stored in sorted(use.stored):
            for made in use.decoded:
                for contents, sparse in _batches(stored):
                    _check_decoding(device, stored, made, contents, sparse=sparse)
            for made in use.resized:
                _check_resizing(device, stored, made)
    except _WrongPixels as wrong:
        return str(wrong)
    except Exception as error:  # noqa: BLE001 - whatever a driver or a compiler raises is a reason not to use it
        first_line = next(iter(str(error).splitlines()), "")
        return f"the self-test on {device} failed with {type(error).__name__}: {first_line}"
    return None


def _batches(stored: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Contents and whether levels are sparse: a batch without ranks, one with, and 16-bit images of 8-bit ranks."""
    yield ("noise", "smooth"), False
    yield CONTENTS, False
    if stored != "uint8":
        yield CONTENTS, True


class _WrongPixels(Exception):
    """A test image came out wrong."""


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
    # Sums are taken in another order, so a level may differ by one; half precision has steps of 1/2048 besides.
    level = 1 / _LEVELS[stored] if dtype.is_floating_point else max(1, _LEVELS[str(dtype)[6:]] / _LEVELS[stored])
    if float((found - expected).abs().max()) > 1.01 * level + (dtype == torch.float16) / 1024:
        raise _WrongPixels(f"the self-test on {device} resized wrongly: {stored} to {made or stored}")


def _converted(pixels: npt.NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """What must come out of pixels [H, W, C], as [C, H, W]."""
    levels = torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.int64))
    kind = torch.full((1, 1, 1), SampleType[str(pixels.dtype).upper()])
    factors = torch.from_numpy(np.array(factors_of(_MEAN, _STD)))
    channel = torch.arange(len(levels))[:, None, None]
    return convert_levels(levels, kind.expand_as(channel), channel, factors, dtype).to(dtype)


def picture(content: str, stored: str, *, sparse: bool) -> npt.NDArray[Any]:
    """Pixels of which the encoder makes constant, raw, palette, and packed or coded tiles; sparse levels get ranks."""
    rng = np.random.default_rng(18)
    top = 255 if stored == "uint8" else 65535
    if content == "flat":
        levels = np.broadcast_to(rng.integers(0, top + 1, 3), _SHAPE)
    elif content == "noise":
        levels = rng.integers(0, top + 1, _SHAPE)
    elif content == "few colours":
        cells = rng.integers(0, 5, (8, 12)).repeat(5, 0).repeat(6, 1)[: _SHAPE[0], : _SHAPE[1]]
        levels = rng.integers(0, top + 1, (5, 3))[cells]
    elif content == "ramps":  # other predictors than smooth pictures have
        y, x, c = np.ogrid[: _SHAPE[0], : _SHAPE[1], :3]
        levels = (3 * x + 2 * y + 50 * c) % 251 * (top // 255)
    else:
        y, x, c = np.ogrid[: _SHAPE[0], : _SHAPE[1], :3]
        wave = 0.5 + 0.3 * np.sin(y / 9 + c) + 0.15 * np.cos(x / 13)
        levels = (wave * top + rng.normal(0, top / 200, _SHAPE)).clip(0, top).astype(np.int64)
    if sparse:
        levels = levels // 301 * 301
    carried = levels - 32768 if stored == "int16" else levels
    pixels: npt.NDArray[Any] = carried.astype(stored)
    return pixels


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """PyTorch compares no uint16; floats are compared bit by bit."""
    return tensor.contiguous().view(torch.uint8)
