# SPDX-License-Identifier: Apache-2.0
"""Finish a batch: combine its pixels with its other fields, and call the user's functions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from headrace import transforms
from headrace.loader._options import Options
from headrace.loader._threads import StopSign
from headrace.loader.batch._callables import SampleCallables
from headrace.loader.batch._collate import Collator, RaggedRule, RowNamer
from headrace.loader.batch._stats import Meters
from headrace.loader.batch.output import Output, as_tensors
from headrace.loader.pixels._engine import PixelSource, Rows, Stack, take_pixels
from headrace.loader.pixels._errors import Draft, SampleErrors
from headrace.loader.pixels._parted import PartTransforms
from headrace.records import Dataset
from headrace.records.schema import SHAPE_TYPES
from headrace.transforms import Compiled
from headrace.transforms.boxes import keep_elements
from headrace.transforms.mixing import Mixer

REPEAT = "_repeat"

# Transforms after which an image has its stored size.
_SAME_SIZE = (
    transforms.ColorJitter,
    transforms.GaussianBlur,
    transforms.GaussianNoise,
    transforms.Grayscale,
    transforms.HorizontalFlip,
    transforms.Normalize,
    transforms.RandomErasing,
    transforms.VerticalFlip,
)


class Finisher:
    """Makes finished batches, in host memory, from drafts whose pixels are done."""

    def __init__(
        self,
        dataset: Dataset,
        compiled: Compiled,
        output: Output,
        *,
        seed: int,
        options: Options,
        meters: Meters,
        parted: PartTransforms | None = None,
    ) -> None:
        self._parted = parted
        self._dataset, self._compiled, self._output = dataset, compiled, output
        self._seed, self.meters, self._collate_fn = seed, meters, options.collate_fn
        self._gather = dataset.gather
        self._fields, self._min_area = options.fields, options.min_area
        types = self._types = dataset.fields
        self._pixel_names = pixel_fields(dataset, options.fields)
        self._image = next((name for name, kind in types.items() if kind == "image"), None)
        self._owners = {field.name: field.of for field in dataset.manifest.fields if field.of}
        self._boxes = [
            name
            for name, kind in types.items()
            if kind == "boxes" and (name in options.fields or name in map(self._owners.get, options.fields))
        ]
        self._moves_boxes = bool(self._boxes and self._image is not None and (compiled.transforms or parted))
        soft = {item.options().labels for item in compiled.mixes}
        self._numbers = {name for name in options.fields if types[name] in ("int64", "float32")} - soft
        self._errors = SampleErrors(dataset, self._pixel_names, seed=seed, on_error=options.on_error, meters=meters)
        masks = [name for name in self._pixel_names if types[name] == "mask"]
        self._ragged = RaggedRule(options.ragged, layout=options.layout, masks=masks)
        self._keeps_size = parted is None and all(isinstance(each, _SAME_SIZE) for each in compiled.transforms)
        self._collator = Collator(output, self._ragged)
        self.callables = SampleCallables(compiled.per_sample, options.threads)
        self._by_sample = bool(compiled.per_sample) or options.collate_fn is not None
        self._mixer: Mixer | None = None
        if compiled.mixes:
            loaded = {name: types[name] for name in options.fields}
            self._mixer = Mixer(compiled.mixes, loaded, dataset.classes, layout=options.layout)
        self._threads = options.threads
        self.takes_long = self._by_sample or bool(compiled.per_batch) or self._mixer is not None
        """Whether user functions or mixing run for each batch, which is worth a thread of its own."""

    def finish(self, draft: Draft, source: PixelSource, stop: StopSign) -> Any:
        """Return the batch, collated by `collate_fn` if there is one, before the functions of a batch."""
        failed = draft.batch.failures()
        stacks = self._errors.settle(draft, source, stop) if failed else take_pixels(draft.batch)
        started = time.perf_counter()
        pixels = dict(zip(self._pixel_names, stacks, strict=True))
        values = {name: self._gather.values(name, draft.rows) for name in self._fields if name not in pixels}
        if self._moves_boxes:
            values |= self._moved(values, draft.rows, draft.epoch)
        if self._mixer is not None and len(draft.rows):
            self._mix(self._mixer, draft, pixels, values)
        if self._by_sample:
            batch = self._finish_by_sample(draft, pixels, values, stop)
        else:
            batch = self._finish_by_field(draft, pixels, values)
        self.meters.batch_seconds += time.perf_counter() - started
        return batch

    def _mix(self, mixer: Mixer, draft: Draft, pixels: dict[str, Stack], values: dict[str, Any]) -> None:
        """Carry out `MixUp` and its like, without the GIL."""
        key = {"seed": self._seed, "epoch": draft.epoch, "sample": int(draft.rows[0])}
        mixed = mixer.mix(pixels[mixer.image], values[mixer.labels], **key, threads=self._threads)
        pixels[mixer.image], values[mixer.labels] = mixed

    def per_batch(self, batch: Any) -> Any:
        """Call the functions of a batch."""
        started = time.perf_counter()
        for function in self._compiled.per_batch:
            batch = function(batch)
        seconds = time.perf_counter() - started
        self.meters.callable_seconds += seconds
        self.meters.batch_seconds += seconds
        return batch

    def _moved(self, values: dict[str, Any], rows: Rows, epoch: int) -> dict[str, Any]:
        """Return the boxes moved with their image, and the lists that belong to boxes without removed elements."""
        moved: dict[str, Any] = {}
        for name in self._boxes:
            boxes = values[name] if name in values else self._gather.values(name, rows)
            views = self._moved_boxes(boxes, rows, epoch)
            if name in values:
                moved[name] = [_single([boxes for boxes, _ in sample]) for sample in views]
            for follower, given in values.items():
                if self._owners.get(follower) == name:
                    left = [
                        [keep_elements(elements, kept) for _, kept in sample]
                        for elements, sample in zip(given, views, strict=True)
                    ]
                    if self._types[follower] in SHAPE_TYPES:
                        left = self._moved_shapes(self._types[follower], left, rows, epoch)
                    moved[follower] = list(map(_single, left))
        return moved

    def _moved_shapes(self, kind: str, shapes: list[list[Any]], rows: Rows, epoch: int) -> list[list[Any]]:
        """Return the shapes of each sample and view moved with their image."""
        columns = self._gather.pixel_columns(str(self._image), 0, rows)
        sizes = zip(columns["height"].tolist(), columns["width"].tolist(), rows.tolist(), strict=True)
        return [
            [
                self._transforms_of(row).shapes_kept(
                    kind, given, height, width, seed=self._seed, epoch=epoch, sample=row, view=view
                )
                for view, given in enumerate(views)
            ]
            for views, (height, width, row) in zip(shapes, sizes, strict=True)
        ]

    def _transforms_of(self, row: int) -> Compiled:
        return self._compiled if self._parted is None else self._parted.of(row)

    def _moved_boxes(self, boxes: Iterable[Any], rows: Rows, epoch: int) -> list[list[tuple[Any, Any]]]:
        """Return for each sample and view its (boxes, indices of the boxes that were kept)."""
        columns = self._gather.pixel_columns(str(self._image), 0, rows)
        heights, widths = columns["height"].tolist(), columns["width"].tolist()
        moved = []
        for given, height, width, row in zip(boxes, heights, widths, rows.tolist(), strict=True):
            key = {"seed": self._seed, "epoch": epoch, "sample": row, "min_area": self._min_area}
            views = range(self._compiled.views)
            transform = self._transforms_of(row)
            moved.append([transform.boxes_kept(given, height, width, **key, view=view) for view in views])
        return moved

    def _finish_by_field(self, draft: Draft, pixels: dict[str, Stack], values: dict[str, Any]) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        for field in self._fields:
            if field not in pixels:
                batch[field] = values[field]
            elif isinstance(pixels[field], tuple):
                batch[field] = [
                    self._ragged.view_group(field, group, self._row_namer(draft)) for group in pixels[field]
                ]
            elif self._ragged.pads or isinstance(pixels[field], list):
                least = draft.padded_shape if self._keeps_size and draft.padded_shape else (0, 0)
                batch.update(self._ragged.entries(field, pixels[field], self._row_namer(draft), least))
            else:
                batch[field] = pixels[field]
        if draft.repeat is not None:
            batch[REPEAT] = draft.repeat
        tensors: dict[str, Any] = as_tensors(batch, self._output)
        return tensors

    def _finish_by_sample(self, draft: Draft, pixels: dict[str, Stack], values: dict[str, Any], stop: StopSign) -> Any:
        columns = {field: pixels[field] if field in pixels else values[field] for field in self._fields}
        samples: list[Any] = []
        for at in range(len(draft.rows)):
            sample = {
                field: column[at].item() if field in self._numbers else _sample_of(column, at)
                for field, column in columns.items()
            }
            if draft.repeat is not None:
                sample[REPEAT] = bool(draft.repeat[at])
            samples.append(as_tensors(sample, self._output))
        row_name = self._row_namer(draft)
        if self._compiled.per_sample:
            started = time.perf_counter()
            samples = self.callables.run(samples, row_name, stop)
            self.meters.callable_seconds += time.perf_counter() - started
        if self._collate_fn is not None:
            return self._collate_fn(samples)
        batch = self._collator.join(samples, row_name)
        for field, stack in pixels.items():
            if isinstance(stack, tuple) and isinstance(batch, dict) and isinstance(batch.get(field), tuple):
                batch[field] = [*batch[field]]  # groups of views, as in a batch without functions
        return batch

    def _row_namer(self, draft: Draft) -> RowNamer:
        rows = draft.rows
        return lambda at: self._dataset.row_name(int(rows[at]))


def _sample_of(column: Any, at: int) -> Any:
    """Return the value of one sample; of groups of views, that of each group."""
    return tuple(group[at] for group in column) if isinstance(column, tuple) else column[at]


def _single(views: list[Any]) -> Any:
    """Return the only view, or the list of several."""
    return views[0] if len(views) == 1 else views


def pixel_fields(dataset: Dataset, fields: Sequence[str]) -> tuple[str, ...]:
    """Return the fields that hold images or masks."""
    return tuple(name for name in fields if dataset.fields[name] in ("image", "mask"))
