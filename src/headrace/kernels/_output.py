# SPDX-License-Identifier: Apache-2.0
"""The output tensor: its dtype, its normalization, and where each image lies in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from headrace.errors import InvalidOutput
from headrace.kernels.tables import LANES, MAX_CHANNELS, TILE_WIDTH, ImageField

DTYPES = (torch.uint8, torch.uint16, torch.int16, torch.float16, torch.float32)
STORED = DTYPES[:3]


def output_dtype(requested: torch.dtype | str | None, stored: set[torch.dtype], *, normalized: bool) -> torch.dtype:
    """Return the requested dtype; by default float32 if normalized, else the dtype of the images."""
    if requested is None and normalized:
        return torch.float32
    if requested is None:
        if len(stored) > 1:
            raise ValueError(f"the images have different dtypes, {sorted(map(str, stored))}: pass dtype=")
        return next(iter(stored), torch.uint8)
    dtype = getattr(torch, requested, None) if isinstance(requested, str) else requested
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(str(each)[6:] for each in DTYPES)}; got {requested!r}")
    if normalized and not dtype.is_floating_point:
        raise ValueError(f"with mean and std, dtype must be float16 or float32; got {requested!r}")
    return dtype


def scale_and_shift(
    mean: float | Sequence[float] | None, std: float | Sequence[float] | None, channels: set[int]
) -> npt.NDArray[np.float32]:
    """Check mean and std, and return the factors [scale and shift, SampleType, MAX_CHANNELS] of the CPU's transforms.

    `channels` are the channel counts of the images. Without a mean and std, the mean is 0 and the std 1.
    """
    if (mean is None) != (std is None):
        raise ValueError("pass both mean and std, or neither")
    means, stds = _listed(0.0 if mean is None else mean), _listed(1.0 if std is None else std)
    for values in (means, stds):
        if not 1 <= len(values) <= MAX_CHANNELS or (len(values) > 1 and channels - {len(values)}):
            given = f"{len(values)} values for images of {sorted(channels)} channels"
            raise ValueError(f"mean and std must have one value, or one per channel; got {given}")
    if min(stds) <= 0:
        raise ValueError(f"std must be > 0; got {min(stds)}")
    return factors_of(tuple(means), tuple(stds))


@lru_cache(maxsize=64)  # every batch of a loader has the same
def factors_of(mean: tuple[float, ...], std: tuple[float, ...]) -> npt.NDArray[np.float32]:
    """Return the factors of a mean and a std that were checked; read-only."""
    levels = np.array([255, 65535, 32768])[:, None]
    spread_mean, spread_std = (
        np.resize(values, MAX_CHANNELS)
        if len(values) == 1
        else np.array([*values, *[1.0] * (MAX_CHANNELS - len(values))])
        for values in (mean, std)
    )
    scale = 1 / (levels * spread_std)
    shift = np.broadcast_to(-spread_mean / spread_std, scale.shape)
    factors: npt.NDArray[np.float32] = np.stack([scale, shift]).astype(np.float32)
    factors.flags.writeable = False
    return factors


def _listed(values: float | Sequence[float]) -> list[float]:
    return [float(value) for value in values] if isinstance(values, (Sequence, np.ndarray)) else [float(values)]


def out_channels(color: str, channels: Sequence[int]) -> int:
    """Return how many channels every output image has; 0 if each keeps its own."""
    if color not in {"keep", "RGB"}:
        raise ValueError(f"color must be 'keep' or 'RGB'; got {color!r}")
    if color == "keep":
        return 0
    for index, count in enumerate(channels):
        if count > 4:
            raise ValueError(
                f"color='RGB' needs images of 1 to 4 channels; image {index} has {count}: use color='keep'"
            )
    return 3


def place_images(
    images: npt.NDArray[np.int64],
    shapes: Sequence[tuple[int, int, int]],
    out: torch.Tensor | None,
    dtype: torch.dtype,
) -> None:
    """Fill the table's offsets and strides: those of `out`, or images back to back, [C, H, W] each."""
    if out is not None:
        _check_out(out, shapes, dtype)
        images[ImageField.OUT] = np.arange(len(shapes)) * out.stride(0)
        images[ImageField.STRIDE_C], images[ImageField.STRIDE_Y], images[ImageField.STRIDE_X] = out.stride()[1:]
        return
    height, width = images[ImageField.HEIGHT], images[ImageField.WIDTH]
    sizes = np.array([shape[0] for shape in shapes], np.int64) * height * width
    images[ImageField.OUT] = np.cumsum(sizes) - sizes
    images[ImageField.STRIDE_C], images[ImageField.STRIDE_Y], images[ImageField.STRIDE_X] = height * width, width, 1


def _check_out(out: torch.Tensor, shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype) -> None:
    if out.ndim != 4 or out.shape[0] != len(shapes) or any(tuple(out.shape[1:]) != shape for shape in shapes):
        raise InvalidOutput(f"out must hold images of shapes {shapes} as [N, C, H, W]; got {list(out.shape)}")
    if out.dtype != dtype:
        raise InvalidOutput(f"out must have dtype {dtype}; got {out.dtype}")
    if LANES * out.stride(2) + TILE_WIDTH * out.stride(3) >= 2**31:
        raise InvalidOutput(
            f"a tile must span less than 2^31 elements of out; its rows are {out.stride(2)} elements apart and its "
            f"columns {out.stride(3)}: decode into another tensor and copy"
        )
