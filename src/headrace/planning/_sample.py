# SPDX-License-Identifier: Apache-2.0
"""A sample of a source's images that stands for all of them, as a source of its own."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from headrace.codec import inspect
from headrace.errors import BadSource
from headrace.formats import IMAGE_SUFFIXES
from headrace.records import Dataset, hash64, open_dataset
from headrace.sources import Encoded, Item, Source, open_source

MANIFEST = "dataset.json"

_MOST_LISTED = 20_000
"""Of a longer source so many are drawn first, by the hash of their keys."""
_SEED = "calibration:"


@dataclass(frozen=True, slots=True)
class Sample:
    """A few items of a source, and how many there are in all."""

    source: Source
    images: int
    sampled: int
    own_format: str | None
    """What all files are, as far as was seen; None if they differ, or are arrays."""


def take_sample(source: Any, n: int) -> Sample:
    """Choose `n` samples: the same ones each time, and of all sizes in their proportions.

    Decoding time follows the size of a file, so a sample with the sizes of the whole tells more than a random one.
    """
    opened = open_any(source)
    if opened.sequential:
        # It can be walked once: its beginning must do, and how long it is nobody knows.
        samples = [(item, opened.load(item)) for item in islice(opened.items(), n)]
        return _sample(_Loaded(opened, samples), len(samples), len(samples))
    count, suffixes, drawn = 0, set(), _Drawn(_MOST_LISTED)
    for item in opened.items():
        count += 1
        suffixes.add(_suffix(item.key))
        drawn.add(item)
    by_size = sorted(drawn.items, key=lambda item: (item.n_bytes, hash64(_SEED + item.key)))
    n = min(n, len(by_size))
    items = [by_size[(2 * k + 1) * len(by_size) // (2 * n)] for k in range(n)]
    found = _sample(_Chosen(opened, items), count, n)
    # One odd file among many is not in the sample, but has a name: it must not be made a JPEG.
    return found if len(suffixes) == 1 else replace(found, own_format=None)


def _sample(source: Source, images: int, sampled: int) -> Sample:
    if not sampled:
        raise BadSource("the source holds no samples to calibrate with")
    pictures = [name for name, kind in source.fields.items() if kind == "image"]
    if not pictures:
        raise BadSource(f"the source has no images, only {', '.join(source.fields) or 'nothing'}")
    found = {_stored_as(source.load(item)[name]) for item in source.items() for name in pictures}
    return Sample(source, images, sampled, found.pop() if len(found) == 1 else None)


def _stored_as(value: object) -> str | None:
    if not isinstance(value, Encoded):
        return None
    return f"hri:{inspect(value.data).mode}" if value.format == "hri" else value.format


def _suffix(key: str) -> str:
    """What a key says of its format; nothing if it is no name of a file."""
    suffix = PurePosixPath(key).suffix.lower()
    return ".jpg" if suffix == ".jpeg" else suffix if suffix in IMAGE_SUFFIXES else ""


def open_any(source: Any) -> Source:
    """Open a dataset, a path to one, or anything that can be built from."""
    if isinstance(source, Dataset):
        return DatasetSource(source)
    if hasattr(source, "items") and hasattr(source, "load"):
        given: Source = source
        return given
    if isinstance(source, str | PathLike):
        if is_dataset(source):
            return DatasetSource(open_dataset(source))
        return open_source(Path(source))
    return open_source(source)


def is_dataset(path: str | PathLike[str]) -> bool:
    return (Path(path) / MANIFEST).is_file()


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


class DatasetSource:
    """A finished dataset as a source: its first renditions, as they are."""

    kind = "dataset"
    sequential = False

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._pixels = [name for name, kind in dataset.fields.items() if kind in ("image", "mask")]

    @property
    def fields(self) -> Mapping[str, str]:
        return self._dataset.fields

    @property
    def classes(self) -> Sequence[str] | None:
        return self._dataset.classes

    def items(self) -> Iterator[Item]:
        sizes = np.zeros(len(self._dataset), np.int64)
        for name in self._pixels:
            sizes += self._dataset.column(f"{name}.0.length").astype(np.int64)
        for index in range(len(self._dataset)):
            yield Item(self._dataset.key(index), int(sizes[index]), (index,))

    def load(self, item: Item) -> dict[str, object]:
        index = item.locator[0]
        sample: dict[str, object] = {}
        for name, kind in self._dataset.fields.items():
            if name in self._pixels:
                data, rendition = self._dataset.read(index, name)
                sample[name] = Encoded(data, rendition.format.partition(":")[0], f"{item.key} in {self._dataset.path}")
            elif kind == "boxes":
                boxes = self._dataset[index][name]
                sample[name] = (boxes.xyxy, boxes.labels)
            else:
                sample[name] = self._dataset.value(index, name)
        return sample
