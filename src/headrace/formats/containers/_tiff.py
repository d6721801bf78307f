# SPDX-License-Identifier: Apache-2.0
"""The directories of a TIFF file: its pages and their sizes, read without decoding pixels."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from headrace.errors import CorruptImage

# Tags
_SUBFILE, _WIDTH, _HEIGHT, _SAMPLES, _PLANES = 254, 256, 257, 277, 284
_WANTED = (_SUBFILE, _WIDTH, _HEIGHT, _SAMPLES, _PLANES)
# A directory with a smaller copy (1) or a mask (4) of another page does not count as a page.
_REDUCED, _MASK = 1, 4
_SIZES = {1: "B", 3: "H", 4: "I", 16: "Q"}
_MAX_PAGES = 65536
_MAX_ENTRIES = 4096


class Page(NamedTuple):
    height: int
    width: int
    samples: int
    """Bands per pixel."""
    is_planar: bool
    """Each band is stored separately."""


def is_tiff(view: memoryview) -> bool:
    return bytes(view[:4]) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def pages(view: memoryview) -> Iterator[Page]:
    """Yield the pages, without smaller copies and masks of other pages. Raise CorruptImage if the file is truncated."""
    try:
        yield from _pages(view)
    except struct.error as error:
        raise CorruptImage(f"this TIFF file is truncated within a directory: {error}") from None


def _pages(view: memoryview) -> Iterator[Page]:
    order = "<" if bytes(view[:2]) == b"II" else ">"
    is_big = struct.unpack_from(f"{order}H", view, 2)[0] == 43
    count_letter, entry_bytes, pointer = ("Q", 20, "Q") if is_big else ("H", 12, "I")
    (offset,) = struct.unpack_from(f"{order}{pointer}", view, 8 if is_big else 4)
    seen: set[int] = set()
    while offset and offset not in seen and len(seen) < _MAX_PAGES:
        seen.add(offset)
        (entries,) = struct.unpack_from(f"{order}{count_letter}", view, offset)
        if entries > _MAX_ENTRIES:
            raise CorruptImage(f"a TIFF directory must have at most {_MAX_ENTRIES} entries; this one has {entries}")
        start = offset + struct.calcsize(f"{order}{count_letter}")
        tags: dict[int, int] = {}
        for at in range(start, start + entries * entry_bytes, entry_bytes):
            tag, kind = struct.unpack_from(f"{order}HH", view, at)
            if tag in _WANTED and kind in _SIZES:
                (tags[tag],) = struct.unpack_from(
                    f"{order}{_SIZES[kind]}", view, at + entry_bytes - struct.calcsize(pointer)
                )
        if not tags.get(_SUBFILE, 0) & (_REDUCED | _MASK):
            yield Page(
                tags.get(_HEIGHT, 0), tags.get(_WIDTH, 0), tags.get(_SAMPLES, 1), is_planar=tags.get(_PLANES, 1) == 2
            )
        (offset,) = struct.unpack_from(f"{order}{pointer}", view, start + entries * entry_bytes)
