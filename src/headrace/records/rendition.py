# SPDX-License-Identifier: Apache-2.0
"""A rendition, one stored encoding of an image: what the index says about it, how it is decoded; and stored tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace import formats
from headrace.errors import CorruptDataset, ImageTooLarge, UnsupportedDataset
from headrace.records.checksum import crc32c
from headrace.records.index.columns import RenditionColumns, TensorColumns
from headrace.records.manifest import shard_name
from headrace.records.schema import COLOR_DTYPE_CODES, DTYPE_NAMES, FORMAT_CODES, FORMAT_NAMES
from headrace.tensors import StoredTensor, TensorType

# `hri`, `png` and `raw` files have checksums; these may decode damaged bytes to wrong pixels.
UNCHECKED = frozenset(FORMAT_CODES[name] for name in ("jpeg", "webp"))
DEFINES_COLOR = frozenset(FORMAT_CODES[name] for name in ("jpeg", "png", "webp"))
"""Formats in which 2 or 4 channels can only mean alpha or CMYK; in `hri` and `raw` they may mean anything."""


@dataclass(frozen=True, slots=True)
class Rendition:
    """Where a rendition is stored and what it contains, according to the index."""

    format: str
    height: int
    width: int
    channels: int
    dtype: str
    shard: str
    shard_number: int
    offset: int
    n_bytes: int
    checksum: int

    @property
    def shape(self) -> tuple[int, ...]:
        """`(H, W)` for one channel, otherwise `(H, W, C)`."""
        return (self.height, self.width) if self.channels == 1 else (self.height, self.width, self.channels)

    @classmethod
    def at(cls, renditions: RenditionColumns, row: int) -> Rendition:
        """Return the rendition in one row of a record batch."""
        return cls(
            format=_known(FORMAT_NAMES, renditions.format[row], "format"),
            height=renditions.height[row],
            width=renditions.width[row],
            channels=renditions.channels[row],
            dtype=_known(DTYPE_NAMES, renditions.dtype[row], "dtype"),
            shard=shard_name(renditions.shard[row]),
            shard_number=renditions.shard[row],
            offset=renditions.offset[row],
            n_bytes=renditions.length[row],
            checksum=renditions.checksum[row],
        )


def read_tensor(
    read: Callable[[int, int, int], memoryview], type_name: str, columns: TensorColumns, row: int
) -> StoredTensor:
    """Read the tensor in one row of a record batch, and compare its checksum."""
    kind = TensorType.parse(type_name)
    shard, offset, length = columns.shard[row], columns.offset[row], columns.length[row]
    where = f"at offset {offset} of {shard_name(shard)}"
    if length != kind.n_bytes:
        raise CorruptDataset(f"{where}: the length of a {kind} must be {kind.n_bytes} bytes; the index has {length}")
    data = read(shard, offset, length)
    if crc32c(data) != columns.checksum[row]:
        raise CorruptDataset(f"{where}: the checksum of the bytes does not match the index")
    return StoredTensor(kind, data)


def decode_color(color: str, code: int, channels: int, dtype: int) -> formats.Color:
    """Return the decoder's `color` for an image, from the dataset's `color` and what the index says about the image."""
    if color == "auto":
        convertible = channels in (1, 3) or (channels <= 4 and (code in DEFINES_COLOR or dtype in COLOR_DTYPE_CODES))
        return "RGB" if convertible else "keep"
    return "RGB" if color == "RGB" else "keep"


def decoder(code: int) -> formats.Format:
    return formats.get(_known(FORMAT_NAMES, code, "format").partition(":")[0])


def check_made_pixels(
    form: formats.Format,
    shape: formats.ImageShape,
    transform: Any,
    keys: Iterable[Mapping[str, int]],
    max_pixels: int,
    boxes: Any = None,
) -> None:
    """Raise ImageTooLarge, before decoding, if transforming an image would need more than `max_pixels`."""
    if shape.height * shape.width <= max_pixels:
        return
    n_pixels = shape.height * shape.width
    if form.can_decode_region:
        passes = [each for key in keys for each in transform.passes(shape.height, shape.width, **key, boxes=boxes)]
        n_pixels = max(each["rows"][part] * each["columns"][part] for each in passes for part in ("size", "canvas"))
    if n_pixels > max_pixels:
        raise ImageTooLarge(
            f"this {form.name} image has {shape.width} x {shape.height} pixels, and the transform needs {n_pixels}, "
            f"more than max_pixels={max_pixels}; crop first, or raise max_pixels if you trust the dataset"
        )


def _known(names: Mapping[int, str], code: int, what: str) -> str:
    try:
        return names[code]
    except KeyError:
        raise UnsupportedDataset(
            f"the index has the unknown {what} code {code}; install a newer version of headrace"
        ) from None
