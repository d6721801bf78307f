# SPDX-License-Identifier: Apache-2.0
"""A batch of encoded images to a tensor on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headrace.errors import InvalidOutput
from headrace.kernels._backend import Backend, choose, decode_with
from headrace.kernels._batch import StagedBatch, factors_of, out_places, place, stage
from headrace.kernels._describe import Ints, Region, TileSource, describe, source_of
from headrace.kernels._devices import launching_on
from headrace.kernels._fields import LANES, TILE_WIDTH, Image
from headrace.kernels._normalisation import STORED, normalisation, output_dtype
from headrace.kernels._status import check_status


@dataclass(frozen=True)
class PreparedBatch:
    """A batch that the host has checked and laid out: what is left is one copy and a few launches.

    `staged.buffer` goes to the device in one piece. `shapes` are those of the images that come out, [C, H, W] each.
    """

    staged: StagedBatch
    shapes: list[tuple[int, int, int]]
    dtype: torch.dtype
    out_channels: int

    @property
    def even(self) -> bool:
        """Whether all images come out in one shape."""
        return len(set(self.shapes)) <= 1


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
    """Decode many `.hri` images on a device, straight into the tensor that training takes.

    Headers, indices and checksums are verified on the host. The bytes of the tiles that the regions touch then go to
    the device in one copy, and a fixed number of kernels decodes them, however many images there are, of whatever size.

    Args:
        datas: The encoded images.
        regions: For each image `(top, left, height, width)`, or None for the whole of it.
        device: Where to decode; "cpu" needs no accelerator and is slow.
        out: A tensor `[N, C, H, W]` of any strides to decode into.
        dtype: uint8, uint16, int16, float16 or float32; by default that of the images, or float32 with a `mean`.
            Floats are on the scale of 0 to 1, int16 on that of -1 to 1, before `mean` and `std`.
        mean: Subtracted on that scale, one number or one a channel.
        std: Divided by afterwards.
        flips: For each image whether its columns are mirrored.
        color: "keep", or "RGB" for three channels of every image of up to four.
        status: An int32 tensor `[N]` of the device, all 0, to note damage in. With it this function does not wait for
            the device, and `check_status` raises later what it would have raised.
        max_pixels: Refuse to produce more pixels than this for any one image.
        backend: "triton", "reference" (plain PyTorch), or "auto" for what the device can run.

    Returns:
        A tensor `[N, C, H, W]` if all images come out in one shape, otherwise a list of tensors `[C, H, W]`.

    Raises:
        CorruptImage: The bytes of an image are damaged or hostile; its position is the error's `index`.

    """
    place_ = torch.device(device)
    implementation = choose(backend, place_)
    prepared = prepare_batch(
        datas,
        regions=regions,
        dtype=dtype if out is None else out.dtype if dtype is None else dtype,
        mean=mean,
        std=std,
        flips=flips,
        color=color,
        out=out,
        max_pixels=max_pixels,
        pin=place_.type == "cuda",
    )
    buffer = prepared.staged.buffer.to(place_, non_blocking=True)
    codes = torch.zeros(len(prepared.shapes), dtype=torch.int32, device=place_) if status is None else status
    images = decode_prepared(prepared, buffer, status=codes, out=out, backend=implementation)
    if status is None:
        check_status(codes)
    return images


def prepare_batch(
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
) -> PreparedBatch:
    """The host's part of `decode_batch`: check everything outside of tiles and lay the batch out for one copy.

    Args are those of `decode_batch`, and:
        datas: May also be a source that fetches tiles from where they are stored, straight to where they are laid out.
        out: Only its shape, dtype and strides are looked at; give the same to `decode_prepared`.
        buffer: A uint8 tensor of the host to use if it is large enough, as one of a ring of pinned ones.
        pin: Whether a new buffer is pinned.

    """
    source = source_of(datas)
    description = describe(source, regions, max_pixels)
    images = description.images
    out_channels = _out_channels(color, images[Image.CHANNELS].tolist())
    channels = images[Image.CHANNELS] if out_channels == 0 else np.full_like(images[Image.CHANNELS], out_channels)
    shapes = [*zip(channels.tolist(), images[Image.HEIGHT].tolist(), images[Image.WIDTH].tolist(), strict=True)]
    stored = {STORED[code] for code in images[Image.DTYPE].tolist()}
    made = output_dtype(dtype, stored, normalised=mean is not None)
    if flips is not None:
        if len(flips) != len(shapes):
            raise ValueError(f"there are {len(shapes)} images but {len(flips)} flips; give one for each")
        images[Image.FLIP] = np.asarray(flips, bool)
    if out is None:
        out_places(images, channels)
    else:
        _check_out(out, shapes, made)
        n = images.shape[1]
        images[Image.OUT] = np.arange(n) * out.stride(0)
        images[Image.STRIDE_C], images[Image.STRIDE_Y], images[Image.STRIDE_X] = out.stride()[1:]
    factors = factors_of(*normalisation(mean, std, {shape[0] for shape in shapes}))
    staged = stage(source, description, factors, buffer=buffer, pin=pin)
    return PreparedBatch(staged, shapes, made, out_channels)


def decode_prepared(
    prepared: PreparedBatch,
    buffer: torch.Tensor,
    *,
    status: torch.Tensor,
    out: torch.Tensor | None = None,
    backend: Backend = "auto",
) -> torch.Tensor | list[torch.Tensor]:
    """The device's part of `decode_batch`, on the current stream of the buffer's device; nothing is waited for.

    Args:
        prepared: What `prepare_batch` gave.
        buffer: `prepared.staged.buffer`, copied to the device.
        status: An int32 tensor `[N]` of the device, all 0; `check_status` tells what it came to.
        out: The tensor that `prepare_batch` was given, if it was.
        backend: As for `decode_batch`.

    """
    implementation = choose(backend, buffer.device)
    sizes = [math.prod(shape) for shape in prepared.shapes]
    memory = torch.empty(sum(sizes), dtype=prepared.dtype, device=buffer.device) if out is None else out
    with launching_on(buffer.device):
        decode_with(implementation, place(prepared.staged, buffer, memory, status, prepared.out_channels))
    if out is not None:
        return out
    if prepared.even and prepared.shapes:
        return memory.view(len(sizes), *prepared.shapes[0])
    pieces = torch.split(memory, sizes) if sizes else ()
    return [piece.view(shape) for piece, shape in zip(pieces, prepared.shapes, strict=True)]


def _out_channels(color: str, channels: Sequence[int]) -> int:
    """How many channels come out of every image; 0 for its own."""
    if color not in {"keep", "RGB"}:
        raise ValueError(f"color is {color!r}; possible are 'keep' and 'RGB'")
    if color == "keep":
        return 0
    for index, count in enumerate(channels):
        if count > 4:
            raise ValueError(f"image {index} has {count} channels, of which there is no RGB: use color='keep'")
    return 3


def _check_out(out: torch.Tensor, shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype) -> None:
    if out.ndim != 4 or out.shape[0] != len(shapes) or any(tuple(out.shape[1:]) != shape for shape in shapes):
        raise InvalidOutput(f"the images are {shapes} as [C, H, W], but out is {list(out.shape)} as [N, C, H, W]")
    if out.dtype != dtype:
        raise InvalidOutput(f"{dtype} comes out, but out is {out.dtype}")
    if LANES * out.stride(2) + TILE_WIDTH * out.stride(3) >= 2**31:
        raise InvalidOutput(
            f"the rows of out are {out.stride(2)} elements apart and its columns {out.stride(3)}, so that a tile would "
            "span 2^31 elements; decode into a tensor of its own and copy"
        )
