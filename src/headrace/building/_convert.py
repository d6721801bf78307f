# SPDX-License-Identifier: Apache-2.0
"""Convert one sample to its renditions and its row. Pure: the result depends only on the sample and the options."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import formats
from headrace.building._options import KEEP, Conversion
from headrace.codec import inspect
from headrace.codec.decoding import matches
from headrace.codec.images import as_image
from headrace.errors import CorruptImage, HeadraceError, UnsupportedImage
from headrace.formats import ImageShape
from headrace.formats.channels import Extra, color_mark, extra_channels, pillow_extra
from headrace.formats.exif import UPRIGHT, orientation, turned, upright
from headrace.records.checksum import crc32c
from headrace.records.schema import (
    ALPHA_DTYPE_CODES,
    CMYK_DTYPE_CODE,
    DEFAULT_HRI,
    DTYPE_CODES,
    FORMAT_CODES,
    MAX_KEY_BYTES,
    Field,
    stored_format,
    strip_lists,
)
from headrace.sources import Encoded

# For smaller files, a new array costs no page faults.
_MIN_REUSED_BYTES = 1 << 16
_NAMES = {np.dtype(name): name for name in DTYPE_CODES}  # `dtype.name` takes 2.5 µs
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


class BadSample(HeadraceError):
    """A sample cannot be stored; the message gives the reason without the sample's key."""


@dataclass(frozen=True, slots=True)
class StoredSample:
    """A converted sample: its renditions in order, and its row without shards and offsets."""

    renditions: tuple[bytes | memoryview, ...]
    row: dict[str, Any]
    was_lossy: bool = False
    """True if one of its images is lossy in the source."""


def convert(key: str, sample: Mapping[str, Any], conversion: Conversion) -> StoredSample:
    """Encode the images of a sample and check all its values."""
    if not 1 <= len(key.encode(errors="surrogatepass")) <= MAX_KEY_BYTES:
        raise BadSample(f"the key must have 1 to {MAX_KEY_BYTES} bytes; got {len(key.encode(errors='surrogatepass'))}")
    row: dict[str, Any] = {"key": _text(key)}
    renditions: list[bytes | memoryview] = []
    was_lossy = False
    for field in conversion.fields:
        if field.name not in sample:
            raise BadSample(f"field {field.name!r} is missing; the sample has {', '.join(sample) or 'no fields'}")
        value = sample[field.name]
        try:
            if field.is_pixels:
                image = _SourceImage(value, field, conversion)
                was_lossy |= image.is_lossy
                for number, stored in enumerate(_store_image(image, field, key, conversion)):
                    renditions.append(stored.data)
                    row |= {field.rendition_column(number, part): n for part, n in stored.columns().items()}
                if field.type == "image":
                    row[f"{field.name}.orientation"] = image.orientation
            elif field.type == "boxes":
                row[field.name], row[f"{field.name}.labels"] = _boxes(value)
            else:
                row[field.name] = _plain(value, field.stored)
                _check_shapes(row[field.name], field.type)
        except (HeadraceError, TypeError, ValueError, OverflowError) as error:
            raise BadSample(f"field {field.name!r}: {error}") from error
    _check_box_lists(row, conversion.fields)
    return StoredSample(tuple(renditions), row, was_lossy)


def _check_shapes(boxes: Any, kind: str) -> None:
    """Check the shapes of each box: x, y and visibility of each keypoint; x and y of each corner of a polygon."""
    if kind == "keypoints" and any(len(numbers) % 3 for numbers in boxes):
        raise BadSample("the keypoints of a box must be three numbers each: x, y and visibility")
    if kind == "polygons" and any(len(numbers) < 6 or len(numbers) % 2 for polygons in boxes for numbers in polygons):
        raise BadSample("a polygon must have x and y of at least three corners")


def _check_box_lists(row: Mapping[str, Any], fields: tuple[Field, ...]) -> None:
    """Check that lists that belong to boxes have one element per box."""
    for field in fields:
        if field.of and len(row[field.name]) != len(row[field.of]):
            raise BadSample(
                f"field {field.name!r} must have one element for each of the {len(row[field.of])} boxes of "
                f"{field.of!r}; it has {len(row[field.name])}"
            )


@dataclass(frozen=True, slots=True)
class _StoredImage:
    data: bytes | memoryview
    format: str
    shape: ImageShape
    extra: Extra | None = None

    @property
    def dtype_code(self) -> int:
        dtype = self.shape.dtype
        if self.extra == "alpha":
            return ALPHA_DTYPE_CODES.get(dtype, DTYPE_CODES[dtype])
        return CMYK_DTYPE_CODE if self.extra == "CMYK" and dtype == "uint8" else DTYPE_CODES[dtype]

    def columns(self) -> dict[str, int]:
        return {
            "length": len(self.data),
            "format": FORMAT_CODES[self.format],
            "height": self.shape.height,
            "width": self.shape.width,
            "channels": self.shape.channels,
            "dtype": self.dtype_code,
            "checksum": crc32c(self.data),
        }


class _ReusedMemory(threading.local):
    """Memory for pixels, one per thread, reused for every image.

    A new array costs a page fault per 4 KiB. Reusing it saved 3 to 8 % of the CPU time of converting 1024x768 PNGs
    (medians of two runs of nine interleaved rounds).
    """

    def __init__(self) -> None:
        self._memory: dict[str, npt.NDArray[np.uint8]] = {}

    def array(self, purpose: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        memory = self._memory.get(purpose)
        if memory is None or memory.nbytes < n_bytes:
            memory = self._memory[purpose] = np.empty(n_bytes, np.uint8)
        return memory[:n_bytes].view(dtype).reshape(shape)


_memory = _ReusedMemory()


class _SourceImage:
    """An image of the source, decoded at most once and only if needed."""

    def __init__(self, value: Any, field: Field, conversion: Conversion) -> None:
        self.color: formats.Color = "index" if field.type == "mask" else "keep"
        self.encoded = value if isinstance(value, Encoded) else None
        self._value = value
        self.stored_as = self._stored_as()
        self._pixels: npt.NDArray[Any] | None = None
        self._metadata: dict[str, bytes] | None = None
        if self.encoded is not None and not conversion.first_page and formats.has_more_pages(self.encoded.data):
            raise UnsupportedImage(
                "the file has several pages or frames, but an image has one: save each page as a separate file, or use "
                "--pages first (pages='first') to take the first page of every file"
            )
        found = self._stored_orientation() if field.type == "image" else UPRIGHT
        self.is_turned = conversion.apply_orientation and found != UPRIGHT
        """True if the pixels are rotated or flipped as the EXIF orientation says."""
        self.orientation = UPRIGHT if self.is_turned else found
        self._turn = found

    @property
    def is_lossy(self) -> bool:
        """Whether it is JPEG or lossy WebP in the source, which are smaller than any lossless format."""
        if self.encoded is None:
            return False
        return self.stored_as == "jpeg" or (self.stored_as == "webp" and bytes(self.encoded.data[12:16]) == b"VP8 ")

    def extra_channels(self, channels: int) -> Extra | None:
        """Return what the channels are beyond gray and RGB, if the source says it; masks have no colors."""
        if channels not in (2, 4) or self.color == "index":
            return None
        if self.encoded is not None:
            return extra_channels(self.encoded.data)
        return pillow_extra(getattr(self._value, "mode", ""))

    # No cached_property: before Python 3.12 all threads share its lock while it computes.
    @property
    def pixels(self) -> npt.NDArray[Any]:
        """Its pixels, valid until this thread decodes the next image."""
        if self._pixels is None:
            pixels = self._decode()
            self._pixels = turned(pixels, self._turn) if self.is_turned else pixels
        return self._pixels

    @property
    def metadata(self) -> dict[str, bytes]:
        if self._metadata is None:
            self._metadata = {}
            if self.stored_as is not None and self.encoded is not None:
                self._metadata = _format(self.stored_as).metadata(self.encoded.data)
        if self.is_turned and "exif" in self._metadata:
            return self._metadata | {"exif": upright(self._metadata["exif"])}
        return self._metadata

    def _stored_orientation(self) -> int:
        if self.encoded is not None and self.encoded.orientation is not None:
            return self.encoded.orientation
        if self.stored_as is None or self.encoded is None:
            return UPRIGHT
        self._metadata = _format(self.stored_as).metadata(self.encoded.data)
        return orientation(self._metadata.get("exif", b""))

    def _decode(self) -> npt.NDArray[Any]:
        if self.encoded is None:
            return _as_pixels(self._value, is_mask=self.color == "index")
        if self.stored_as is None or self.color != "keep" or len(self.encoded.data) < _MIN_REUSED_BYTES:
            return formats.decode(self.encoded.data, color=self.color)
        own = _format(self.stored_as)
        shape = own.probe(self.encoded.data)
        if shape.height * shape.width > formats.MAX_PIXELS:
            return own.decode(self.encoded.data)  # raises, with the reason
        out = _memory.array("source", shape.array, shape.dtype)
        return own.decode(self.encoded.data, out=out)

    def _stored_as(self) -> str | None:
        """Return the format of the source's bytes, if Headrace can store it."""
        if self.encoded is None or self.encoded.format not in formats.NAMES:
            return None
        if self.encoded.format == "hri":
            return f"hri:{inspect(self.encoded.data).mode}"
        return self.encoded.format


def _store_image(image: _SourceImage, field: Field, key: str, conversion: Conversion) -> Iterator[_StoredImage]:
    own = image.stored_as
    mix = conversion.mixes[field.name]
    for wanted in mix.choose(key):
        if wanted == KEEP and image.encoded is not None and own is None:
            raise UnsupportedImage(
                f"format 'keep' cannot store a {image.encoded.format or 'file of unknown format'} file; "
                f"use a format such as {DEFAULT_HRI}"
            )
        # An array has no file to keep.
        target = DEFAULT_HRI if wanted == KEEP and own is None else wanted
        if own is not None and not image.is_turned and (target == KEEP or stored_format(target) == own):
            yield _keep(image, own, verify=conversion.verify)
        elif mix.is_plan and not formats.parse(target)[0].lossless:
            raise UnsupportedImage(
                f"the plan stores it as {target}, which would change its pixels; only images that already are "
                f"{stored_format(target)} can be stored in that format: remove {target} from the plan"
            )
        else:
            yield _encode(image, target, verify=conversion.verify)


def _keep(image: _SourceImage, own: str, *, verify: bool) -> _StoredImage:
    assert image.encoded is not None
    if verify:
        _ = image.pixels  # finds damage now, not in training
    shape = _format(own).probe(image.encoded.data, color=image.color)
    return _StoredImage(image.encoded.data, own, shape, image.extra_channels(shape.channels))


def _encode(image: _SourceImage, target: str, *, verify: bool) -> _StoredImage:
    encoder, mode = formats.parse(target)
    extra = image.extra_channels(image.pixels.shape[2] if image.pixels.ndim == 3 else 1)
    metadata = image.metadata
    if extra == "CMYK" or (extra is not None and encoder.name == "hri"):
        metadata = metadata | color_mark(extra, image.pixels.shape[2])
    data = encoder.encode(image.pixels, mode=mode, metadata=metadata)
    if verify and encoder.lossless and not _decodes_to(encoder, data, image):
        raise CorruptImage(f"{target} did not decode to the same pixels, which is a bug in Headrace: please report it")
    if encoder.lossless:
        pixels = image.pixels
        channels = pixels.shape[2] if pixels.ndim == 3 else 1
        shape = ImageShape(pixels.shape[0], pixels.shape[1], channels, _NAMES[pixels.dtype])
        return _StoredImage(data, stored_format(target), shape, extra)
    return _StoredImage(data, stored_format(target), encoder.probe(data))


def _decodes_to(encoder: formats.Format, data: bytes, image: _SourceImage) -> bool:
    pixels = image.pixels
    if encoder.name == "hri" and pixels.flags.c_contiguous:
        return matches(data, pixels)  # compares in the cache, strip by strip
    again = _memory.array("again", pixels.shape, pixels.dtype)
    return _same(encoder.decode(data, color=image.color, out=again), pixels)


def _format(stored: str) -> formats.Format:
    return formats.get(stored.partition(":")[0])


def _same(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    words = left.nbytes % 8 == 0 and left.flags.c_contiguous and right.flags.c_contiguous
    if words:  # eight bytes per comparison: 0.6 instead of 1.4 ms for 6 MB
        return bool(np.array_equal(left.reshape(-1).view(np.uint64), right.reshape(-1).view(np.uint64)))
    return bool(np.array_equal(left, right))


def _as_pixels(value: Any, *, is_mask: bool) -> npt.NDArray[Any]:
    if is_mask and hasattr(value, "getpalette"):
        value = np.asarray(value)  # a Pillow image with a palette: the mask is its indices
    if getattr(value, "dtype", None) == np.bool_:
        value = np.asarray(value).view(np.uint8)
    pixels = as_image(value)
    return pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels


def _boxes(value: Any) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    xyxy, labels = value
    boxes = np.asarray(xyxy, np.float32).reshape(-1, 4)
    numbers = np.asarray(labels, np.int64).reshape(-1)
    if len(boxes) != len(numbers):
        raise BadSample(f"boxes must have one label each; got {len(boxes)} boxes and {len(numbers)} labels")
    return boxes, numbers


def _plain(value: Any, kind: str) -> Any:
    inner, depth = strip_lists(kind)
    if depth:
        return [_plain(item, kind[5:-1]) for item in value]
    if inner == "int64":
        if not hasattr(value, "__index__") and not isinstance(value, np.bool_):
            raise BadSample(f"the value must be an integer; got {type(value).__name__}")
        number = int(value) if isinstance(value, np.bool_) else operator.index(value)
        if not -(1 << 63) <= number < 1 << 63:
            raise BadSample(f"int64 must fit in 64 bits; got {number}")
        return number
    if inner == "float32":
        real = float(value)
        if math.isfinite(real) and abs(real) > _MAX_FLOAT32:
            raise BadSample(f"the value must fit in float32; got {real}")
        return real
    if inner == "str":
        return _text(value)
    if not isinstance(value, bytes | bytearray | memoryview):
        raise BadSample(f"the value must be bytes; got {type(value).__name__}")
    return bytes(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadSample(f"the value must be a str; got {type(value).__name__}")
    value.encode()  # raises for lone surrogates
    return value
