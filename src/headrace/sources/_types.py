# SPDX-License-Identifier: Apache-2.0
"""What every source promises to the builder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace import formats
from headrace.errors import BadSource

_MAX_SUFFIXES = 20
_OTHER_SUFFIXES = "with other suffixes"

MAX_FILE_BYTES = 2**30
"""One encoded image, or one member of an archive, has no business to be larger."""


@dataclass(frozen=True, slots=True)
class Item:
    """One sample, not yet read. Cheap to make, to hold and to pickle."""

    key: str
    """The source-relative path, with `/`, unless the source has a better name. Unique within the source."""
    n_bytes: int
    """Size of the sample's images in the source, from its directory; an average where it does not say more."""
    locator: tuple[Any, ...]
    """Where the source finds it again; nobody else's business."""
    stamp: int = 0
    """Changes when the sample's contents do: its file's modification time, or a checksum; 0 where neither is known."""
    problem: str | None = None
    """Why this sample cannot be loaded, if the listing shows that already; `load` raises it."""

    def check(self) -> None:
        """Raise BadSource if the listing found something wrong with this sample."""
        if self.problem is not None:
            raise BadSource(self.problem)


@dataclass(frozen=True, slots=True)
class Encoded:
    """The bytes of an image as the source has them."""

    data: bytes | memoryview
    format: str | None
    """One of `formats.NAMES`, told from the bytes; None for what only `formats.decode` reads, if anything."""
    name: str
    """For messages: the file, and where in it."""
    orientation: int | None = None
    """As EXIF has it, where the source knows it though these bytes may not say."""


class Ignored:
    """Counts the files of a source that are not samples, by the end of their names."""

    def __init__(self) -> None:
        self.counts: dict[str, tuple[int, str]] = {}
        """Suffix → how many, and the first of them by name."""

    def add(self, name: str) -> None:
        suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122 - a Path for every file costs ten times as much
        if suffix not in self.counts and len(self.counts) >= _MAX_SUFFIXES:
            suffix = _OTHER_SUFFIXES
        count, first = self.counts.get(suffix, (0, name))
        self.counts[suffix] = (count + 1, min(first, name))

    @classmethod
    def union(cls, parts: Iterable[Ignored | None]) -> Ignored:
        """The counts of several sources together."""
        total = cls()
        for part in parts:
            for suffix, (count, first) in (part.counts if part is not None else {}).items():
                so_far, example = total.counts.get(suffix, (0, first))
                total.counts[suffix] = (so_far + count, example)
        return total

    def describe(self) -> list[str]:
        """One line for each suffix, the most frequent first."""
        ordered = sorted(self.counts.items(), key=lambda entry: (-entry[1][0], entry[0]))
        return [
            f"{count} {suffix or 'without suffix'} (such as {printable(first)})" for suffix, (count, first) in ordered
        ]


def printable(name: str) -> str:
    """A file name as valid text: bytes that are not UTF-8 are written as escapes."""
    return os.fsencode(name).decode(errors="backslashreplace")


class Source(Protocol):
    """A dataset as people have it.

    Samples are listed in a defined order by `items` and read one by one by `load`. A source is small and picklable:
    each worker gets a copy, opens files for itself, and may load any item, though none is faster to read than the one
    that comes next. `load` may be called from several threads. The exception is a source with `sequential` set, which
    can only be walked once, in one process: load each item before asking for the next.
    """

    kind: str
    sequential: bool

    @property
    def fields(self) -> Mapping[str, str]:
        """Names and types of the fields that `load` returns, in order.

        The types are image, mask, boxes, int64, float32, str, bytes, list<int64>, list<float32> and list<str>.
        """
        ...

    @property
    def classes(self) -> Sequence[str] | None:
        """Names of the labels 0, 1, 2 … if the source knows them."""
        ...

    def items(self) -> Iterator[Item]:
        """List the samples. Streams; holds no pixels.

        What is wrong with one sample does not end the listing: its item has a `problem`.
        """
        ...

    def load(self, item: Item) -> dict[str, object]:
        """Read one sample: all of `fields`.

        An image or mask is an `Encoded` or an array; boxes are a pair of float32 `[N, 4]` (x0, y0, x1, y1 in pixels)
        and int64 `[N]` labels.
        """
        ...


def encoded(data: bytes | memoryview, name: str) -> Encoded:
    """Name the bytes' format and keep the source's name for them."""
    if len(data) == 0:
        raise BadSource(f"{name} is empty")
    return Encoded(data, formats.sniff(data), name)


def orientation(image: Encoded) -> int:
    """The EXIF orientation, 1 to 8, which is recorded and never applied; 1 where there is none."""
    return formats.orientation(image.data)


def field_name(name: str) -> str:
    """A name that an index column may have: no dots, no control characters, no leading underscore, not `key`."""
    cleaned = "".join("_" if char == "." or ord(char) < 32 else char for char in name).lstrip("_")[:128]
    return "key_" if cleaned == "key" else cleaned or "unnamed"
