# SPDX-License-Identifier: Apache-2.0
"""The metadata section of a file (spec/image.md §3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_SECTION_BYTES = 2**32 - 1


def pack_metadata(metadata: Mapping[str, bytes | str]) -> bytes:
    """Write entries as a section: keys ascending as bytes, each key and value after its length."""
    entries = sorted((_encode_key(key), _encode_value(key, value)) for key, value in metadata.items())
    section = bytearray()
    for key, value in entries:
        section += len(key).to_bytes(1, "little") + key + len(value).to_bytes(4, "little") + value
    if len(section) > _MAX_SECTION_BYTES:
        raise InvalidMetadata(f"metadata of {len(section)} bytes is more than the {_MAX_SECTION_BYTES} that fit a file")
    return bytes(section)


def _encode_key(key: str) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"a metadata key is a str, not {type(key).__name__}: {key!r}")
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise InvalidMetadata(f"metadata key {key!r} is not valid Unicode: {error.reason}") from None
    if not 1 <= len(encoded) <= 255:
        raise InvalidMetadata(f"a metadata key has 1 to 255 bytes of UTF-8, and {key[:40]!r} has {len(encoded)}")
    return encoded


def _encode_value(key: str, value: bytes | str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"a metadata value is bytes or str, and that of {key!r} is {type(value).__name__}")
    if len(value) > _MAX_SECTION_BYTES:
        raise InvalidMetadata(f"the metadata value of {key!r} has {len(value)} bytes, more than fit a file")
    return bytes(value)
