# SPDX-License-Identifier: Apache-2.0
"""The same pixels in every memory layout that NumPy can give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.codec.pictures import Image


def stepped(image: Image) -> Image:
    """Every second row and third column of a larger array."""
    larger = np.full((image.shape[0] * 2, image.shape[1] * 3, *image.shape[2:]), 77, image.dtype)
    larger[::2, ::3] = image
    return larger[::2, ::3]


def sliced(image: Image) -> Image:
    """The middle of a larger array: a gap after each row, and after each pixel where there are channels."""
    larger = np.full(tuple(side + 3 for side in image.shape), 77, image.dtype)
    middle = larger[tuple(slice(1, side + 1) for side in image.shape)]
    middle[...] = image
    return middle


def planar(image: Image) -> Image:
    """Channel by channel in memory, as PyTorch holds images."""
    return np.moveaxis(np.moveaxis(image, -1, 0).copy(), 0, -1)


def unaligned(image: Image) -> Image:
    """At an odd address."""
    memory = np.zeros(image.nbytes + 1, np.uint8)
    view = memory[1:].view(image.dtype).reshape(image.shape)
    view[...] = image
    return view


def read_only(image: Image) -> Image:
    copy = image.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS: dict[str, Callable[[Image], Image]] = {
    "contiguous": np.ascontiguousarray,
    "fortran": np.asfortranarray,
    "transposed": lambda image: image.swapaxes(0, 1).copy().swapaxes(0, 1),
    "upside down": lambda image: image[::-1].copy()[::-1],
    "mirrored": lambda image: image[:, ::-1].copy()[:, ::-1],
    "turned": lambda image: image[::-1, ::-1].copy()[::-1, ::-1],
    "channels reversed": lambda image: image[..., ::-1].copy()[..., ::-1],
    "stepped": stepped,
    "sliced": sliced,
    "planar": planar,
    "unaligned": unaligned,
    "other byte order": lambda image: image.astype(image.dtype.newbyteorder()),
    "read only": read_only,
}
