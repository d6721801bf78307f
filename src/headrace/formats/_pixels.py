# SPDX-License-Identifier: Apache-2.0
"""From a decoder's array to the one that was asked for: crop, color, and the caller's buffer."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from headrace.errors import (
    CorruptImage,
    HeadraceError,
    ImageTooLarge,
    InvalidOutput,
    InvalidRegion,
    UnsupportedImage,
)
from headrace.formats._types import Color

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from typing_extensions import Buffer

    from headrace.formats._types import ImageShape, Region


def byte_view(data: Buffer) -> memoryview:
    """Any buffer as a flat, read-only view of its bytes."""
    view = memoryview(data).toreadonly()
    if not view.c_contiguous:
        raise TypeError("encoded bytes must be contiguous in memory; pass bytes(data)")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def check_color(color: Color) -> None:
    if color not in get_args(Color):
        raise ValueError(f"color is one of {', '.join(map(repr, get_args(Color)))}, not {color!r}")


def check_pixels(name: str, height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        raise ImageTooLarge(
            f"this {name} image has {width} x {height} = {height * width} pixels, more than max_pixels={max_pixels}; "
            "raise max_pixels if the file is to be trusted"
        )


def check_region(region: Region, height: int, width: int) -> Region:
    try:
        top, left, rows, columns = map(operator.index, region)
    except (TypeError, ValueError):
        raise InvalidRegion(f"a region is (top, left, height, width), four integers, not {region!r}") from None
    if rows < 1 or columns < 1 or top < 0 or left < 0 or top + rows > height or left + columns > width:
        raise InvalidRegion(
            f"region (top {top}, left {left}, height {rows}, width {columns}) does not lie within the image of "
            f"{height} rows and {width} columns"
        )
    return top, left, rows, columns


def check_out(out: npt.NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if out.shape != shape or out.dtype != dtype:
        raise InvalidOutput(f"the image is {dtype} {list(shape)}, and `out` is {out.dtype} {list(out.shape)}")
    if not out.flags.writeable:
        raise InvalidOutput("`out` is read-only")


def check_decoded(name: str, image: npt.NDArray[Any], shape: ImageShape) -> None:
    """Trust no decoder to agree with the head that was checked before it ran."""
    if image.shape != shape.array or image.dtype != np.dtype(shape.dtype):
        raise CorruptImage(
            f"this {name} file's head announces {shape.dtype} {list(shape.array)}, its body decodes to "
            f"{image.dtype} {list(image.shape)}"
        )


def as_rgb(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Three channels without a copy: gray repeated, alpha left out."""
    channels = 1 if image.ndim == 2 else image.shape[2]
    if channels > 4:
        raise UnsupportedImage(f"an image of {channels} channels has no RGB; decode it with color='keep'")
    if channels in (3, 4):
        return image[..., :3]
    gray = image if image.ndim == 2 else image[..., 0]
    return np.broadcast_to(gray[..., None], (*gray.shape, 3))


def deliver(
    image: npt.NDArray[Any], *, color: Color, region: Region | None, out: npt.NDArray[Any] | None
) -> npt.NDArray[Any]:
    """Crop and recolor a decoded image and hand it over: in `out`, or in a contiguous array of the caller's own."""
    if region is not None:
        top, left, rows, columns = check_region(region, *image.shape[:2])
        image = image[top : top + rows, left : left + columns]
    if color == "RGB":
        image = as_rgb(image)
    if out is None:
        whole = np.ascontiguousarray(image)
        return whole if whole.flags.writeable else whole.copy()
    if out is not image:
        check_out(out, image.shape, image.dtype)
        np.copyto(out, image)
    return out


def direct_out(
    shape: ImageShape, color: Color, region: Region | None, out: npt.NDArray[Any] | None
) -> npt.NDArray[Any] | None:
    """`out` itself if a decoder may write the whole image into it as it is, else None."""
    if out is None or region is not None:
        return None
    if not (out.flags.c_contiguous and out.flags.writeable) or (color == "RGB" and shape.channels != 3):
        return None
    return out if out.shape == shape.array and out.dtype == np.dtype(shape.dtype) else None


@contextmanager
def decoder_errors(name: str) -> Iterator[None]:
    """Turn whatever a decoder raises over hostile bytes into CorruptImage; other people's libraries raise anything."""
    try:
        yield
    except (HeadraceError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).strip() or type(error).__name__
        raise CorruptImage(f"the {name} decoder refuses these bytes: {reason}") from error
