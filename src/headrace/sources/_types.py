# SPDX-License-Identifier: Apache-2.0
"""What every source promises to the builder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace import formats
from headrace.errors import BadSource

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
        """List the samples. Streams; holds no pixels."""
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
