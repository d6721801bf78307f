# SPDX-License-Identifier: Apache-2.0
"""A source as an addition to a dataset: its labels in the dataset's numbers, without samples that are there already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BuildError
from headrace.records.index.arrays import from_numpy, make_array
from headrace.records.index.reading import Index
from headrace.records.schema import Field
from headrace.sources import Item, Source

MAX_NAMED = 3


class AddedSource:
    """The samples of a source that an addition stores. Labels are mapped by the names of their classes."""

    def __init__(self, source: Source, fields: tuple[Field, ...], labels: Sequence[int] | None) -> None:
        self._source, self._labels = source, None if labels is None else np.array(labels, np.int64)
        self._boxes = {field.name for field in fields if field.type == "boxes"}
        self.kind, self.sequential = source.kind, source.sequential
        self.fields: Mapping[str, str] = {field.name: field.declared for field in fields}
        self.classes = source.classes
        self.omitted: frozenset[str] = frozenset()
        """Keys that are not added."""
        self.refuses = False
        """Whether a key that is in `omitted` is an error."""

    @property
    def ignored(self) -> Any:
        return getattr(self._source, "ignored", None)

    def items(self) -> Iterator[Item]:
        for item in self._source.items():
            if item.key not in self.omitted:
                yield item
            elif self.refuses:
                check_new([item.key], None)

    def load(self, item: Item) -> dict[str, object]:
        sample = self._source.load(item)
        if self._labels is None:
            return sample
        if "label" in sample:
            sample["label"] = int(self._mapped(np.array(sample["label"], np.int64), item.key))
        for name in self._boxes & sample.keys():
            shapes: Any = sample[name]
            sample[name] = shapes[0], self._mapped(np.asarray(shapes[1], np.int64), item.key)
        return sample

    def _mapped(self, labels: Any, key: str) -> Any:
        assert self._labels is not None
        if labels.size and not 0 <= labels.min() <= labels.max() < len(self._labels):
            raise ValueError(f"the labels of {key!r} must be in [0, {len(self._labels)}), one per class; got {labels}")
        return self._labels[labels]


def join_classes(
    ours: Sequence[str] | None, theirs: Sequence[str] | None, name: str, *, has_labels: bool
) -> tuple[tuple[str, ...] | None, list[int] | None]:
    """Return the classes of both, ours first, and the label here of each label there; None keeps the numbers.

    Raises BuildError if only one side names its classes, because labels of the other could be any.
    """
    if ours is not None and theirs is not None:
        joined = tuple(dict.fromkeys((*ours, *theirs)))
        places = {each: label for label, each in enumerate(joined)}
        return joined, [places[each] for each in theirs]
    if has_labels and (ours is None) != (theirs is None):
        with_names, without = ("the dataset", name) if theirs is None else (name, "the dataset")
        raise BuildError(
            f"labels are matched by the names of the classes: {with_names} has names, {without} has none; give it "
            f"class names, as class folders, COCO categories or headrace.Writer(classes=…) do"
        )
    return (None if ours is None else tuple(ours)), None


def has_labels(fields: Sequence[Field]) -> bool:
    """Return whether one of the fields counts in the classes."""
    return any(field.type == "boxes" or (field.name, field.type) == ("label", "int64") for field in fields)


def find_keys(index: Index, wanted: Sequence[str] | None) -> Iterator[tuple[str, int]]:
    """Yield the key and the number of each sample of a dataset whose key is among `wanted`, or of all."""
    values = None if wanted is None else make_array("str", [_valid(key) for key in wanted], pa.large_string())
    first_row = 0
    for number in range(len(index.places)):
        keys = index.record_batch(number, validate=True).column("key")
        rows = np.arange(len(keys))
        if values is not None:
            bits = np.frombuffer(pc.is_in(keys, value_set=values).buffers()[1], np.uint8)
            rows = np.flatnonzero(np.unpackbits(bits, bitorder="little")[: len(keys)])
            keys = keys.take(from_numpy(rows, pa.int64()))
        for key, row in zip(keys.to_pylist(), (rows + first_row).tolist(), strict=True):
            sample = row if index.dropped is None else index.dropped.sample(row)
            if sample is not None:
                yield key, sample
        first_row += index.record_batch(number).num_rows


def check_new(existing: Sequence[str], total: int | None) -> None:
    """Raise BuildError if keys exist already; `total` is the number of samples of the source."""
    if existing:
        some = ", ".join(map(repr, existing[:MAX_NAMED])) + (", …" if len(existing) > MAX_NAMED else "")
        count = "a sample" if total is None else f"{len(existing)} of {total} samples"
        raise BuildError(
            f"the dataset has {count} of the source already: {some}; use --existing skip (existing='skip') to add only "
            f"the others"
        )


def _valid(key: str) -> str:
    return key.encode(errors="replace").decode()
