# SPDX-License-Identifier: Apache-2.0
"""The last stage before the trainer: the pixels of a batch meet its other fields and the user's functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from headrace.loader._options import Options
from headrace.loader._wait import StopSign
from headrace.loader.batch._callables import SampleCallables
from headrace.loader.batch._collate import Collator, Namer
from headrace.loader.batch._output import Output, as_tensors
from headrace.loader.batch._ragged import RaggedRule
from headrace.loader.batch._stats import Meters
from headrace.loader.pixels._engine import PixelSource, Rows, Stack
from headrace.loader.pixels._errors import Draft, SampleErrors
from headrace.records import Dataset
from headrace.transforms import Compiled
from headrace.transforms.boxes import keep_elements

REPEAT = "_repeat"


class Finisher:
    """Makes finished batches, in the host's memory, of drafts whose pixels are done."""

    def __init__(
        self,
        dataset: Dataset,
        compiled: Compiled,
        output: Output,
        *,
        seed: int,
        options: Options,
        meters: Meters,
        beside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._dataset, self._compiled, self._output = dataset, compiled, output
        self._beside = beside  # where pixels are on a device already, what is done to them is done in order there
        self._seed, self.meters, self._collate_fn = seed, meters, options.collate_fn
        self._gather = dataset.gather
        self._fields, self._min_area = options.fields, options.min_area
        types = dataset.fields
        self.pixel_names = pixel_fields(dataset, options.fields)
        self._anchor = next((name for name, kind in types.items() if kind == "image"), None)
        self._owners = {field.name: field.of for field in dataset.manifest.fields if field.of}
        self._boxes = [
            name
            for name, kind in types.items()
            if kind == "boxes" and (name in options.fields or name in map(self._owners.get, options.fields))
        ]
        self._numbers = {name for name in options.fields if types[name] in ("int64", "float32")}
        self._errors = SampleErrors(dataset, self.pixel_names, seed=seed, on_error=options.on_error, meters=meters)
        masks = [name for name in self.pixel_names if types[name] == "mask"]
        self._rule = RaggedRule(options.ragged, layout=options.layout, masks=masks)
        self._collator = Collator(output, self._rule)
        self.callables = SampleCallables(compiled.per_sample, options.threads)

    @property
    def runs_python(self) -> bool:
        """Whether a user's function is called for a batch, for which a thread beside the trainer's is worth while."""
        return bool(self.callables) or self._collate_fn is not None or bool(self._compiled.per_batch)

    def finish(self, draft: Draft, source: PixelSource, stop: StopSign) -> Any:
        """Give the batch, with `collate_fn` in place of stacking if there is one; functions for batches come later."""
        with self._beside():
            return self._finish(draft, self._errors.settle(draft, source, stop), stop)

    def _finish(self, draft: Draft, stacks: Sequence[Stack], stop: StopSign) -> Any:
        begun = time.perf_counter()
        pixels = dict(zip(self.pixel_names, stacks, strict=True))
        values = {name: self._gather.values(name, draft.rows) for name in self._fields if name not in pixels}
        if self._anchor is not None and self._compiled.transforms:
            values |= self._moved(values, draft.rows, draft.epoch)
        if self.callables or self._collate_fn is not None:
            batch = self._by_samples(draft, pixels, values, stop)
        else:
            batch = self._by_fields(draft, pixels, values)
        self.meters.batch_seconds += time.perf_counter() - begun
        return batch

    def per_batch(self, batch: Any) -> Any:
        """Call the functions that take a whole batch."""
        begun = time.perf_counter()
        for function in self._compiled.per_batch:
            batch = function(batch)
        self.meters.callable_seconds += time.perf_counter() - begun
        return batch

    def _moved(self, values: dict[str, Any], rows: Rows, epoch: int) -> dict[str, Any]:
        """Boxes moved with their image, and the lists that belong to them without the elements of removed boxes."""
        moved: dict[str, Any] = {}
        for name in self._boxes:
            boxes = values[name] if name in values else self._gather.values(name, rows)
            views = self._moved_boxes(boxes, rows, epoch)
            if name in values:
                moved[name] = [_unwrapped([boxes for boxes, _ in sample]) for sample in views]
            for follower, given in values.items():
                if self._owners.get(follower) == name:
                    moved[follower] = [
                        _unwrapped([keep_elements(elements, kept) for _, kept in sample])
                        for elements, sample in zip(given, views, strict=True)
                    ]
        return moved

    def _moved_boxes(self, boxes: Iterable[Any], rows: Rows, epoch: int) -> list[list[tuple[Any, Any]]]:
        """Move boxes with their image: for each sample and view the boxes, and which of those given they are."""
        columns = self._gather.pixel_columns(str(self._anchor), 0, rows)
        heights, widths = columns["height"].tolist(), columns["width"].tolist()
        moved = []
        for given, height, width, row in zip(boxes, heights, widths, rows.tolist(), strict=True):
            key = {"seed": self._seed, "epoch": epoch, "sample": row, "min_area": self._min_area}
            views = range(self._compiled.views)
            moved.append([self._compiled.boxes_kept(given, height, width, **key, view=view) for view in views])
        return moved

    def _by_fields(self, draft: Draft, pixels: dict[str, Stack], values: dict[str, Any]) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        name = self._namer(draft)
        for field in self._fields:
            if field in pixels:
                batch.update(self._rule.entries(field, pixels[field], name))
            else:
                batch[field] = values[field]
        if draft.repeat is not None:
            batch[REPEAT] = draft.repeat
        tensors: dict[str, Any] = as_tensors(batch, self._output)
        return tensors

    def _by_samples(self, draft: Draft, pixels: dict[str, Stack], values: dict[str, Any], stop: StopSign) -> Any:
        columns = {field: pixels[field] if field in pixels else values[field] for field in self._fields}
        samples: list[Any] = []
        for at in range(len(draft.rows)):
            sample = {
                field: column[at].item() if field in self._numbers else column[at] for field, column in columns.items()
            }
            if draft.repeat is not None:
                sample[REPEAT] = bool(draft.repeat[at])
            samples.append(as_tensors(sample, self._output))
        name = self._namer(draft)
        if self.callables:
            begun = time.perf_counter()
            samples = self.callables.run(samples, name, stop)
            self.meters.callable_seconds += time.perf_counter() - begun
        return self._collator.join(samples, name) if self._collate_fn is None else self._collate_fn(samples)

    def _namer(self, draft: Draft) -> Namer:
        rows = draft.rows
        return lambda at: self._dataset.row_name(int(rows[at]))


def _unwrapped(views: list[Any]) -> Any:
    """One view alone is not in a list."""
    return views[0] if len(views) == 1 else views


def pixel_fields(dataset: Dataset, fields: Sequence[str]) -> tuple[str, ...]:
    """Those of the fields that hold images or masks."""
    return tuple(name for name in fields if dataset.fields[name] in ("image", "mask"))
