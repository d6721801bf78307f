# SPDX-License-Identifier: Apache-2.0
"""Files against records: the same bytes in a small dataset, for a while."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from headrace.building import Writer
from headrace.errors import BadSource
from headrace.profiling._course import Course
from headrace.profiling._images import Extent
from headrace.profiling._notebook import Notebook, describe_storage
from headrace.profiling._settings import Settings
from headrace.profiling._storage import compare
from headrace.records import Dataset
from headrace.sources import Encoded, Item
from headrace.sources import Source as AnySource

# Files that are compared with records of the same: enough that a pass over them is no blink.
COMPARED_FILES = 2048
COMPARED_BYTES = 64 << 20


def add_records(
    course: Course, book: Notebook, source: AnySource, root: str, items: Sequence[Item], settings: Settings
) -> None:
    """Plan the comparison with records: the same bytes, back to back."""

    def records(seconds: float) -> str:
        mean = sum(item.n_bytes for item in items) / len(items)
        chosen = some_of(items, min(COMPARED_FILES, max(16, int(COMPARED_BYTES / max(1.0, mean)))))
        files = [Extent(f"{root}/{item.key}", 0, item.n_bytes) for item in chosen]
        with _as_records(source, chosen, settings.workdir) as dataset:
            places = [describe_storage(place) for place in (dataset.path, Path(root))]
            if places[0] != places[1]:
                book.notes.append(
                    f"records were read from {places[0]}, files from {places[1]}: give a workdir on the same storage"
                )
            found = book.raw_and_records = compare(files, dataset, workers=settings.cores, seconds=seconds)
        return f"{found.raw_cold:,.0f} files/s cold, {found.records_cold:,.0f} as records"

    course.add("files against records of the same", 2, records, optional=True)


@contextmanager
def _as_records(source: AnySource, items: Sequence[Item], workdir: str | None) -> Iterator[Dataset]:
    """The same bytes as a dataset, for a while."""
    with tempfile.TemporaryDirectory(prefix="headrace-profile-", dir=workdir) as folder:
        place = Path(folder) / "records.hr"
        with Writer(place, fields={"image": "image"}, format="keep", verify=False, on_error="skip") as writer:
            for item in items:
                writer.write({"image": encoded_image(source, item)}, key=item.key)
        yield Dataset(place)


def encoded_image(source: AnySource, item: Item) -> Encoded:
    """The first image of a sample, as the source has it."""
    sample = source.load(item)
    for name, kind in source.fields.items():
        value = sample[name]
        if kind == "image" and isinstance(value, Encoded):
            return value
    raise BadSource(f"{item.key} has no image of its own bytes: build a dataset of it and profile that")


def some_of(items: Sequence[Item], most: int) -> Sequence[Item]:
    """Draw items at random, in their order; all if there are no more."""
    if len(items) <= most:
        return items
    chosen = np.random.default_rng(0).choice(len(items), most, replace=False)
    return [items[number] for number in sorted(chosen.tolist())]
