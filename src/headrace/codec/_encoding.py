# SPDX-License-Identifier: Apache-2.0
"""Encode images as `.hri` bytes, with their metadata (spec/image.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headrace import _core
from headrace.codec.images import as_image
from headrace.errors import InvalidMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

_MAX_SECTION_BYTES = 2**32 - 1


def encode(
    image: npt.ArrayLike,
    *,
    mode: Literal["fast", "dense"] = "dense",
    metadata: Mapping[str, bytes | str] | None = None,
    threads: int = 1,
) -> bytes:
    """Encode an image losslessly. Releases the GIL.

    Args:
        image: An array `[H, W]` or `[H, W, C]` of uint8, uint16 or int16 with any strides, or what NumPy can view as
            one; up to 65535 rows and columns and 64 channels. `[H, W, 1]` is the same image as `[H, W]`.
        mode: "dense" for fewer bytes, "fast" for faster decoding.
        metadata: Stored with the image and returned by `inspect`. "icc", "exif" and "xmp" hold those blocks; other keys
            are free. Text is stored as UTF-8.
        threads: Number of threads that encode tiles; 0 means one per core. The bytes do not depend on it.

    Raises:
        UnsupportedImage: Another dtype or shape; the message says how to convert.

    """
    return _core.encode(as_image(image), mode, _pack_metadata(metadata) if metadata else b"", threads)


def _pack_metadata(metadata: Mapping[str, bytes | str]) -> bytes:
    """Write the metadata section (spec/image.md §3): keys in byte order, each key and value after its length."""
    entries = sorted((_encode_key(key), _encode_value(key, value)) for key, value in metadata.items())
    section = bytearray()
    for key, value in entries:
        section += len(key).to_bytes(1, "little") + key + len(value).to_bytes(4, "little") + value
    if len(section) > _MAX_SECTION_BYTES:
        raise InvalidMetadata(f"metadata must have at most {_MAX_SECTION_BYTES} bytes; got {len(section)}")
    return bytes(section)


def _encode_key(key: str) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"a metadata key must be a str; got {type(key).__name__}: {key!r}")
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise InvalidMetadata(f"metadata key {key!r} is not valid Unicode: {error.reason}") from None
    if not 1 <= len(encoded) <= 255:
        raise InvalidMetadata(f"a metadata key must have 1 to 255 bytes of UTF-8; {key[:40]!r} has {len(encoded)}")
    return encoded


def _encode_value(key: str, value: bytes | str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"a metadata value must be bytes or str; {key!r} has {type(value).__name__}")
    if len(value) > _MAX_SECTION_BYTES:
        raise InvalidMetadata(
            f"a metadata value must have at most {_MAX_SECTION_BYTES} bytes; {key!r} has {len(value)}"
        )
    return bytes(value)
