# SPDX-License-Identifier: Apache-2.0
"""Steps that decoders share: check sizes, crop, convert to RGB, and write into the caller's array."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import (
    CorruptImage,
    HeadraceError,
    ImageTooLarge,
    InvalidOutput,
    InvalidRegion,
    UnsupportedImage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from headrace.formats._types import Color, ImageShape, Out, Region


def check_pixels(name: str, height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        raise ImageTooLarge(
            f"this {name} image has {width} x {height} = {height * width} pixels, more than max_pixels={max_pixels}; "
            "raise max_pixels (--max-pixels) if you trust the file"
        )


def check_region(region: Region, height: int, width: int) -> Region:
    try:
        top, left, rows, columns = map(operator.index, region)
    except (TypeError, ValueError):
        raise InvalidRegion(f"a region must be four integers (top, left, height, width); got {region!r}") from None
    if rows < 1 or columns < 1 or top < 0 or left < 0 or top + rows > height or left + columns > width:
        raise InvalidRegion(
            f"a region must lie within the image of {height} rows and {width} columns; got (top {top}, left {left}, "
            f"height {rows}, width {columns})"
        )
    return top, left, rows, columns


def check_decoded(name: str, image: npt.NDArray[Any], shape: ImageShape) -> None:
    """Raise CorruptImage unless a decoder returned what the header of the file announces."""
    if image.shape != shape.array or image.dtype != np.dtype(shape.dtype):
        raise CorruptImage(
            f"this {name} file announces {shape.dtype} {list(shape.array)}, but its data decodes to "
            f"{image.dtype} {list(image.shape)}"
        )


def as_rgb(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view with three channels: gray is repeated, alpha is dropped."""
    channels = 1 if image.ndim == 2 else image.shape[2]
    if channels > 4:
        raise UnsupportedImage(f"color='RGB' needs 1 to 4 channels; the image has {channels}: use color='keep'")
    if channels in (3, 4):
        return image[..., :3]
    gray = image if image.ndim == 2 else image[..., 0]
    return np.broadcast_to(gray[..., None], (*gray.shape, 3))


def cmyk_to_rgb(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert uint8 `[H, W, 4]`, where 255 is full ink, to RGB with Pillow's formula."""
    if image.dtype != np.uint8:
        raise UnsupportedImage(f"only uint8 CMYK can be converted to RGB; got {image.dtype}: use color='keep'")
    from PIL import Image  # noqa: PLC0415 - Pillow is imported where it is used

    height, width, _ = image.shape
    return np.asarray(Image.frombytes("CMYK", (width, height), image.tobytes()).convert("RGB"))


def deliver(image: npt.NDArray[Any], *, color: Color, region: Region | None, out: Out) -> npt.NDArray[Any]:
    """Crop and convert a decoded image. Return `out` if given, otherwise a writable contiguous array."""
    if region is not None:
        top, left, rows, columns = check_region(region, *image.shape[:2])
        image = image[top : top + rows, left : left + columns]
    if color == "RGB":
        image = as_rgb(image)
    if out is None:
        contiguous = np.ascontiguousarray(image)
        return contiguous if contiguous.flags.writeable else contiguous.copy()
    if out is not image:
        if out.shape != image.shape or out.dtype != image.dtype:
            raise InvalidOutput(
                f"`out` must be {image.dtype} {list(image.shape)}, as the image is; got {out.dtype} {list(out.shape)}"
            )
        if not out.flags.writeable:
            raise InvalidOutput("`out` must be writable; it is read-only")
        np.copyto(out, image)
    return out


def direct_out(shape: ImageShape, color: Color, region: Region | None, out: Out) -> Out:
    """Return `out` if a decoder may write the complete image into it as it is, otherwise None."""
    if out is None or region is not None:
        return None
    if not (out.flags.c_contiguous and out.flags.writeable) or (color == "RGB" and shape.channels != 3):
        return None
    return out if out.shape == shape.array and out.dtype == np.dtype(shape.dtype) else None


@contextmanager
def decoder_errors(name: str) -> Iterator[None]:
    """Turn every exception that a third-party decoder raises for hostile bytes into CorruptImage."""
    try:
        yield
    except (HeadraceError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).strip() or type(error).__name__
        raise CorruptImage(f"the {name} decoder refuses these bytes: {reason}") from error
