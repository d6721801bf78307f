# SPDX-License-Identifier: Apache-2.0
"""Finish a batch: combine its pixels with its other fields, and call the user's functions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
from headrace.records.schema import PIXEL_TYPES
from headrace.tensors import BFLOAT16, TensorType, bfloat16_dtype, is_tensor
from headrace.transforms import Compiled
from headrace.transforms.detection.targets import Targets, join_targets
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
        self._fields, self._box_filter = options.fields, options.box_filter
        types = self._types = dataset.fields
        self._flip_pairs = dataset.flip_pairs
        self._stored_names = stored_fields(dataset, options.fields)
        self._tensors = {name: TensorType.parse(types[name]) for name in options.fields if is_tensor(types[name])}
        if output.kind is np.ndarray and any(kind.dtype == BFLOAT16 for kind in self._tensors.values()):
            bfloat16_dtype()  # raises, if it is missing
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
        self._errors = SampleErrors(dataset, self._stored_names, seed=seed, on_error=options.on_error, meters=meters)
        masks = [name for name in options.fields if types[name] == "mask"]
        self._ragged = RaggedRule(options.ragged, layout=options.layout, masks=masks, fixed=self._tensors)
        self._keeps_size = parted is None and all(isinstance(each, _SAME_SIZE) for each in compiled.transforms)
        self._collator = Collator(output, self._ragged)
        self.callables = SampleCallables(compiled.per_sample, options.threads)
        self._by_sample = bool(compiled.per_sample) or options.collate_fn is not None
        self._mixer: Mixer | None = None
        if compiled.mixes:
            loaded = {name: types[name] for name in options.fields}
            self._mixer = Mixer(compiled.mixes, loaded, dataset.classes, layout=options.layout)
        self._threads = options.threads
        self.takes_long = self._by_sample or bool(compiled.per_batch or compiled.tiles) or self._mixer is not None
        """Whether user functions, mixing or mosaics run for each batch, which is worth a thread of its own."""

    def finish(self, draft: Draft, source: PixelSource, stop: StopSign) -> Any:
        """Return the batch, collated by `collate_fn` if there is one, before the functions of a batch."""
        failed = draft.batch.failures()
        stacks = self._errors.settle(draft, source, stop) if failed else take_pixels(draft.batch)
        started = time.perf_counter()
        pixels = dict(zip(self._stored_names, stacks, strict=True))
        values = {name: self._gather.values(name, draft.rows) for name in self._fields if name not in pixels}
        values |= {
            name: self._output.numbers(kind, as_rows(pixels.pop(name), kind)) for name, kind in self._tensors.items()
        }
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
        """Return the boxes moved with their image, and what belongs to them, without removed elements."""
        parts = self._rows_of_images(rows, epoch)
        numbers = np.array([row for each in parts for row in each], np.int64)
        columns = self._gather.pixel_columns(str(self._image), 0, numbers)
        sizes = list(zip(columns["height"].tolist(), columns["width"].tolist(), strict=True))
        ends: list[int] = np.cumsum([len(each) for each in parts], dtype=np.int64).tolist()
        spans = list(zip([0, *ends[:-1]], ends, strict=True)) if len(rows) else []
        moved: dict[str, Any] = {}
        for name in self._boxes:
            followers = [field for field in values if self._owners.get(field) == name]
            targets = self._targets(name, followers, values, numbers, has_partners=len(numbers) != len(rows))
            samples = [
                self._moved_views(targets[begin:end], sizes[begin:end], {"sample": row, "epoch": epoch})
                for row, (begin, end) in zip(rows.tolist(), spans, strict=True)
            ]
            if name in values:
                moved[name] = [_single([view.boxes for view in views]) for views in samples]
            for field in followers:
                moved[field] = [_single([view.lists[field] for view in views]) for views in samples]
        return moved

    def _rows_of_images(self, rows: Rows, epoch: int) -> list[list[int]]:
        """Return the rows that each sample is made of: its own, and those of its partners in a mosaic."""
        tiles = self._compiled.tiles
        if tiles is None:
            return [[row] for row in rows.tolist()]
        happens, positions = tiles.partners(rows, len(self._dataset), seed=self._seed, epoch=epoch)
        partners = self._gather.rows(positions.reshape(-1)).reshape(positions.shape)
        return [[row, *(partners[at].tolist() if happens[at] else ())] for at, row in enumerate(rows.tolist())]

    def _transforms_of(self, row: int) -> Compiled:
        return self._compiled if self._parted is None else self._parted.of(row)

    def _targets(
        self, name: str, followers: Sequence[str], values: dict[str, Any], rows: Rows, *, has_partners: bool
    ) -> list[Targets]:
        """Return a field of boxes, and what belongs to them, of each row."""
        known: dict[str, Any] = {} if has_partners else values  # those of a batch are those of its own rows
        columns = {each: known.get(each) for each in (name, *followers)}
        read = {each: self._gather.values(each, rows) if column is None else column for each, column in columns.items()}
        return [Targets(boxes, {each: read[each][at] for each in followers}) for at, boxes in enumerate(read[name])]

    def _moved_views(self, parts: list[Targets], sizes: list[tuple[int, int]], key: dict[str, int]) -> list[Targets]:
        """Return the targets of each view of a sample, from those of the images that it is made of."""
        corners = [part.boxes.xyxy for part in parts]
        compiled = self._transforms_of(key["sample"])
        views = []
        for view in range(self._compiled.views):
            motions = compiled.motions(sizes, {"seed": self._seed, "view": view, **key}, corners)
            moved = [
                motion.move(part, self._types, self._box_filter, self._flip_pairs)
                for part, motion in zip(parts, motions, strict=True)
            ]
            views.append(join_targets(moved))
        return views

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


def as_rows(stack: Stack, kind: TensorType) -> npt.NDArray[np.uint8]:
    """Return the tensors of a batch as bytes, `[samples, bytes]`. If samples were replaced, they may be a list."""
    rows = stack if isinstance(stack, np.ndarray) else np.array(stack, np.uint8)
    return rows.reshape(-1, kind.n_bytes)


def stored_fields(dataset: Dataset, fields: Sequence[str]) -> tuple[str, ...]:
    """Return the fields that lie in shards: images, masks and tensors."""
    kinds = dataset.fields
    return tuple(name for name in fields if kinds[name] in PIXEL_TYPES or is_tensor(kinds[name]))


def pixel_fields(dataset: Dataset, fields: Sequence[str]) -> tuple[str, ...]:
    """Return the fields that hold images or masks."""
    return tuple(name for name in fields if dataset.fields[name] in PIXEL_TYPES)
