# SPDX-License-Identifier: Apache-2.0
"""A sample of a source's images that stands for all of them, as a source of its own."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

from headrace import formats
from headrace.codec import inspect
from headrace.errors import BadSource, HeadraceError
from headrace.formats import IMAGE_SUFFIXES
from headrace.records import hash64
from headrace.sources import Encoded, Item, Source, open_source

_MOST_LISTED = 20_000
"""Of a longer source so many are drawn first, by the hash of their keys."""
_SEED = "calibration:"
_PIXELS = ("image", "mask")


@dataclass(frozen=True, slots=True)
class SourceSample:
    """A few items of a source, and how many there are in all."""

    source: Source
    images: int
    sampled: int
    own_format: str | None
    """What all files are, as far as was seen; None if they differ, or are arrays."""
    left_out: tuple[str, ...] = ()
    """Samples that cannot be decoded, each with the reason."""


def take_sample(source: Any, n: int) -> SourceSample:
    """Choose `n` samples: the same ones each time, and of all sizes in their proportions.

    Decoding time follows the size of a file, so a sample with the sizes of the whole tells more than a random one.
    Those that cannot be decoded are left out: one damaged file says nothing of the others.
    """
    opened = open_any(source)
    if opened.sequential:
        # It can be walked once: its beginning must do, and how long it is nobody knows.
        return _sound(opened, islice(opened.items(), n))
    count, suffixes, drawn = 0, set(), _Drawn(_MOST_LISTED)
    for item in opened.items():
        count += 1
        suffixes.add(_suffix(item.key))
        drawn.add(item)
    by_size = sorted(drawn.items, key=lambda item: (item.n_bytes, hash64(_SEED + item.key)))
    n = min(n, len(by_size))
    items = [by_size[(2 * k + 1) * len(by_size) // (2 * n)] for k in range(n)]
    found = replace(_sound(opened, items), images=count)
    # One odd file among many is not in the sample, but has a name: it must not be made a JPEG.
    return found if len(suffixes) == 1 else replace(found, own_format=None)


def _sound(source: Source, items: Iterable[Item]) -> SourceSample:
    """Those of these items whose images can be decoded, as a source."""
    pictures = [name for name, kind in source.fields.items() if kind == "image"]
    if not pictures:
        raise BadSource(f"the source has no images, only {', '.join(source.fields) or 'nothing'}")
    good: list[tuple[Item, dict[str, object]]] = []
    left_out: list[str] = []
    stored: set[str | None] = set()
    for item in items:
        try:
            sample = source.load(item)
            forms = {name: _decoded(sample[name], kind) for name, kind in source.fields.items() if kind in _PIXELS}
        except (HeadraceError, OSError, ValueError) as error:
            left_out.append(f"{item.key}: {error}")
        else:
            stored.update(forms[name] for name in pictures)
            good.append((item, sample if source.sequential else {}))
    if not good:
        damage = f": none of {len(left_out)} can be decoded, such as {left_out[0]}" if left_out else ""
        raise BadSource(f"the source holds no samples to calibrate with{damage}")
    chosen = _Loaded(source, good) if source.sequential else _Chosen(source, [item for item, _ in good])
    return SourceSample(chosen, len(good), len(good), stored.pop() if len(stored) == 1 else None, tuple(left_out))


def _decoded(value: object, kind: str) -> str | None:
    """Decode a file, and name its format; None if it is an array."""
    if not isinstance(value, Encoded):
        return None
    formats.decode(value.data, color="index" if kind == "mask" else "keep")
    return f"hri:{inspect(value.data).mode}" if value.format == "hri" else value.format


def _suffix(key: str) -> str:
    """What a key says of its format; nothing if it is no name of a file."""
    suffix = PurePosixPath(key).suffix.lower()
    return ".jpg" if suffix == ".jpeg" else suffix if suffix in IMAGE_SUFFIXES else ""


def open_any(source: Any) -> Source:
    """Open a dataset, a path to one, or anything that can be built from."""
    if hasattr(source, "items") and hasattr(source, "load"):
        given: Source = source
        return given
    return open_source(Path(source) if isinstance(source, PathLike) else source)


class _Drawn:
    """At most so many items, those whose keys have the least hashes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, str, Item]] = []

    def add(self, item: Item) -> None:
        entry = (-hash64(_SEED + item.key), item.key, item)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        elif entry[0] > self._heap[0][0]:
            heapq.heapreplace(self._heap, entry)

    @property
    def items(self) -> list[Item]:
        return [item for _, _, item in self._heap]


class _Chosen:
    """Some items of a source, as a source."""

    sequential = False

    def __init__(self, source: Source, items: Sequence[Item]) -> None:
        self._source, self._items = source, items
        self.kind = source.kind

    @property
    def fields(self) -> Mapping[str, str]:
        return self._source.fields

    @property
    def classes(self) -> Sequence[str] | None:
        return self._source.classes

    def items(self) -> Iterator[Item]:
        return iter(self._items)

    def load(self, item: Item) -> dict[str, object]:
        return self._source.load(item)


class _Loaded(_Chosen):
    """Samples that were loaded already."""

    def __init__(self, source: Source, samples: Sequence[tuple[Item, dict[str, object]]]) -> None:
        super().__init__(source, [item for item, _ in samples])
        self._samples = {item.key: sample for item, sample in samples}

    def load(self, item: Item) -> dict[str, object]:
        return self._samples[item.key]
