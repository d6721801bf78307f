# SPDX-License-Identifier: Apache-2.0
"""Decode a batch of encoded images to a tensor on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headrace.kernels._batch import StagedBatch, on_device, stage
from headrace.kernels._describe import Region, TileSource, describe, source_of
from headrace.kernels._output import STORED, out_channels, output_dtype, place_images, scale_and_shift
from headrace.kernels._status import check_status
from headrace.kernels.backend import Backend, choose, decode_with, launching_on
from headrace.kernels.tables import ImageField, Ints


def decode_batch(
    datas: Sequence[Any],
    *,
    regions: Sequence[Region | None] | None = None,
    device: torch.device | str,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | str | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    flips: Sequence[bool] | None = None,
    color: str = "keep",
    status: torch.Tensor | None = None,
    max_pixels: int = 2**30,
    backend: Backend = "auto",
) -> torch.Tensor | list[torch.Tensor]:
    """Decode many `.hri` images on a device, into the tensor that training consumes.

    The host verifies headers, indices and checksums. The bytes of the tiles that the regions touch are copied to the
    device at once and decoded by a fixed number of kernels, independent of the number and sizes of the images.

    Args:
        datas: The encoded images.
        regions: For each image `(top, left, height, width)`, or None for the full image.
        device: Where to decode; "cpu" needs no GPU and is slow.
        out: A tensor `[N, C, H, W]` of any strides to decode into.
        dtype: uint8, uint16, int16, float16 or float32; by default that of the images, or float32 with a `mean`.
            Before `mean` and `std`, floats are in [0, 1], or in [-1, 1] for int16 images.
        mean: Subtracted; one number, or one per channel.
        std: Divides the result; one number, or one per channel.
        flips: For each image whether its columns are mirrored.
        color: "keep", or "RGB" for three channels of every image of up to four.
        status: An int32 tensor `[N]` of zeros on the device, which records damage. If it is given, this function does
            not wait for the device; call `check_status` later to raise the error.
        max_pixels: Refuse to produce more pixels than this for any one image.
        backend: "triton", "reference" (plain NumPy on the host), or "auto" for what the device can run.

    Returns:
        A tensor `[N, C, H, W]` if all images have the same shape, otherwise a list of tensors `[C, H, W]`.

    Raises:
        CorruptImage: The bytes of an image are damaged or hostile; its position is the error's `index`.

    """
    place = torch.device(device)
    implementation = choose(backend, place)
    staged = stage_batch(
        datas,
        regions=regions,
        dtype=dtype if out is None else out.dtype if dtype is None else dtype,
        mean=mean,
        std=std,
        flips=flips,
        color=color,
        out=out,
        max_pixels=max_pixels,
        pin=place.type == "cuda",
    )
    buffer = staged.buffer.to(place, non_blocking=True)
    codes = torch.zeros(len(staged.shapes), dtype=torch.int32, device=place) if status is None else status
    images = decode_staged(staged, buffer, status=codes, out=out, backend=implementation)
    if status is None:
        check_status(codes)
    return images


def stage_batch(
    datas: Sequence[Any] | TileSource,
    *,
    regions: Sequence[Region | None] | Ints | None = None,
    dtype: torch.dtype | str | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    flips: Sequence[bool] | None = None,
    color: str = "keep",
    out: torch.Tensor | None = None,
    buffer: torch.Tensor | None = None,
    pin: bool = False,
    max_pixels: int = 2**30,
) -> StagedBatch:
    """Do the host's part of `decode_batch`: check everything outside of tiles and lay the batch out for one copy.

    The arguments are those of `decode_batch`, and:
        datas: May also be a source that reads tiles from storage directly into the buffer.
        out: Only its shape, dtype and strides are used; pass the same tensor to `decode_staged`.
        buffer: A uint8 tensor of the host to use if it is large enough, for example from a ring of pinned ones.
        pin: Whether a new buffer is pinned.

    """
    source = source_of(datas)
    description = describe(source, regions, max_pixels)
    images = description.images
    own = images[ImageField.CHANNELS].tolist()
    made = out_channels(color, own)
    sides = images[ImageField.HEIGHT].tolist(), images[ImageField.WIDTH].tolist()
    shapes = [*zip([made or channels for channels in own], *sides, strict=True)]
    stored = {STORED[code] for code in images[ImageField.DTYPE].tolist()}
    made_dtype = output_dtype(dtype, stored, normalized=mean is not None)
    if flips is not None:
        if len(flips) != len(shapes):
            raise ValueError(f"flips must have one entry per image; got {len(flips)} for {len(shapes)} images")
        images[ImageField.FLIP] = np.asarray(flips, bool)
    place_images(images, shapes, out, made_dtype)
    factors = scale_and_shift(mean, std, {shape[0] for shape in shapes})
    return stage(
        source, description, factors, buffer=buffer, pin=pin, shapes=shapes, dtype=made_dtype, out_channels=made
    )


def decode_staged(
    staged: StagedBatch,
    buffer: torch.Tensor,
    *,
    status: torch.Tensor,
    out: torch.Tensor | None = None,
    backend: Backend = "auto",
) -> torch.Tensor | list[torch.Tensor]:
    """Do the device's part of `decode_batch`, on the current stream of the buffer's device, without waiting for it.

    `buffer` is `staged.buffer`, copied to the device, and `out` the tensor that was passed to `stage_batch`, if any.
    `status` is an int32 tensor `[N]` of zeros on the device; pass it to `check_status` later.
    """
    implementation = choose(backend, buffer.device)
    sizes = [math.prod(shape) for shape in staged.shapes]
    memory = torch.empty(sum(sizes), dtype=staged.dtype, device=buffer.device) if out is None else out
    with launching_on(buffer.device):
        decode_with(implementation, on_device(staged, buffer, memory, status))
    if out is not None:
        return out
    if staged.even and staged.shapes:
        return memory.view(len(sizes), *staged.shapes[0])
    pieces = torch.split(memory, sizes) if sizes else ()
    return [piece.view(shape) for piece, shape in zip(pieces, staged.shapes, strict=True)]
