# SPDX-License-Identifier: Apache-2.0
"""The protocol of a source, and the types that its samples are made of."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from headrace import formats
from headrace.errors import BadSource, MissingExtra

_MAX_SUFFIXES = 20
_OTHER_SUFFIXES = "with other suffixes"

MAX_FILE_BYTES = 2**30
"""Largest encoded image, and largest member of an archive."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """One sample that is listed but not read. Small, and cheap to pickle."""

    key: str
    """Path relative to the source, with `/`, unless the source has a better name. Unique within the source."""
    n_bytes: int
    """Size of the sample's images in the source; an average where the source does not list sizes."""
    locator: tuple[Any, ...]
    """Where the source finds the sample; private to the source."""
    stamp: int = 0
    """Changes with the sample's contents: the modification time of its file, or a checksum; 0 if neither is known."""
    problem: str | None = None
    """Why the sample cannot be loaded, if the listing shows it; `load` raises it."""

    def check(self) -> None:
        """Raise BadSource if the listing found a problem with this sample."""
        if self.problem is not None:
            raise BadSource(self.problem)


@dataclass(frozen=True, slots=True)
class Encoded:
    """The bytes of an image file of a source."""

    data: bytes | memoryview
    format: str | None
    """One of `formats.NAMES`, detected from the bytes; None if only `formats.decode` may read it."""
    name: str
    """The file and the position in it, for error messages."""
    orientation: int | None = None
    """EXIF orientation, if the source knows it from elsewhere than these bytes."""


class Ignored:
    """Counts the files of a source that are not samples, by suffix."""

    def __init__(self) -> None:
        self.counts: dict[str, tuple[int, str]] = {}
        """Suffix → number of files, and the first of them by name."""

    def add(self, name: str) -> None:
        suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122 - a Path per file costs ten times as much
        if suffix not in self.counts and len(self.counts) >= _MAX_SUFFIXES:
            suffix = _OTHER_SUFFIXES
        count, first = self.counts.get(suffix, (0, name))
        self.counts[suffix] = (count + 1, min(first, name))

    @classmethod
    def union(cls, parts: Iterable[Ignored | None]) -> Ignored:
        """Add up the counts of several sources."""
        total = cls()
        for part in parts:
            for suffix, (count, first) in (part.counts if part is not None else {}).items():
                so_far, example = total.counts.get(suffix, (0, first))
                total.counts[suffix] = (so_far + count, example)
        return total

    def describe(self) -> list[str]:
        """Return one line per suffix, the most frequent first."""
        ordered = sorted(self.counts.items(), key=lambda entry: (-entry[1][0], entry[0]))
        return [
            f"{count} {suffix or 'without suffix'} (such as {as_utf8(first)})" for suffix, (count, first) in ordered
        ]


def as_utf8(name: str) -> str:
    """Return a file name as valid text; bytes that are not UTF-8 are escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")


class Source(Protocol):
    """Lists samples in a defined order with `items`, and reads them one by one with `load`.

    A source is small and picklable. Each worker gets a copy, opens files for itself, and may load any item from any
    thread; reading is fastest in the order of the listing. The exception is a source with `sequential` set: it can be
    iterated once, in one process, and each item must be loaded before the next is listed.
    """

    kind: str
    sequential: bool

    @property
    def fields(self) -> Mapping[str, str]:
        """Names and types of the fields that `load` returns, in order.

        The types are image, mask, boxes, int64, float32, str, bytes, list<int64>, list<float32> and list<str>; and of
        boxes, keypoints and polygons.
        """

    @property
    def classes(self) -> Sequence[str] | None:
        """Names of the labels 0, 1, 2 …, if the source knows them."""

    def items(self) -> Iterator[Item]:
        """List the samples as a stream, without pixels. A sample that cannot be read is an item with a `problem`."""

    def load(self, item: Item) -> dict[str, object]:
        """Read all `fields` of one sample.

        An image or mask is an `Encoded` or an array; boxes are a pair of float32 `[N, 4]` (x0, y0, x1, y1 in pixels)
        and int64 `[N]` labels. Keypoints are a list of x, y and visibility (0: not labeled) for each box; polygons are
        a list of polygons for each box, each a list of x and y.
        """


class PerThread(Generic[T]):
    """Holds one value per thread, made for a key; another key or a fork makes a new value. Pickled without values."""

    def __init__(self) -> None:
        self._slot = threading.local()

    def get(self, key: object, make: Callable[[], T]) -> T:
        wanted = (os.getpid(), key)
        held: tuple[Any, T] | None = getattr(self._slot, "held", None)
        if held is None or held[0] != wanted:
            self._slot.held = None  # release the old value before the new one takes memory
            held = (wanted, make())
            self._slot.held = held
        return held[1]

    def __reduce__(self) -> tuple[type[PerThread[T]], tuple[()]]:
        return type(self), ()


def encoded(data: bytes | memoryview, name: str) -> Encoded:
    """Wrap the bytes of an image file and detect their format."""
    if len(data) == 0:
        raise BadSource(f"{name} is empty")
    return Encoded(data, formats.sniff(data), name)


def field_name(name: str) -> str:
    """Return a valid name for an index column: no dots, control characters or leading underscores, and not `key`."""
    cleaned = "".join("_" if char == "." or ord(char) < 32 else char for char in name).lstrip("_")[:128]
    return "key_" if cleaned == "key" else cleaned or "unnamed"


def require(module: str, extra: str, what: str) -> Any:
    """Import an optional package; if it is not installed, the error names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingExtra(f"{package} is needed to read {what}: pip install 'headrace[{extra}]'") from None
