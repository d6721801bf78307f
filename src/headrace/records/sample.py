# SPDX-License-Identifier: Apache-2.0
"""One sample of a dataset: read, decoded and transformed in the calling thread, with the draws of a loader."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from headrace import _core, formats, transforms
from headrace.errors import CorruptDataset, CorruptImage, HeadraceError, TransformError
from headrace.records.checksum import crc32c
from headrace.records.index.columns import Batch
from headrace.records.rendition import check_made_pixels, decode_color, decoder, read_tensor
from headrace.records.schema import COLOR_DTYPE_CODES, MAX_SIDE, Field
from headrace.tensors import StoredTensor
from headrace.transforms.boxes import BoxFilter
from headrace.transforms.detection.canvas import check_fields, make_canvas
from headrace.transforms.detection.targets import Targets, join_targets

if TYPE_CHECKING:
    from headrace.records._dataset import Dataset

Key = dict[str, int]
"""What the random draws of one view depend on: seed, epoch, sample and view."""


class Place(NamedTuple):
    """Where the index has a row."""

    row: int
    batch: Batch
    at: int


class SampleMaker:
    """Makes samples for a dataset. Thread-safe."""

    def __init__(self, dataset: Dataset, compiled: transforms.Compiled | None) -> None:
        self._compiled = compiled
        # The dataset keeps this object. A cycle would keep its files open until the next garbage collection.
        self._dataset: Dataset = weakref.proxy(dataset)
        self._files = dataset._files  # noqa: SLF001 - both belong to this room
        self._fields = self._files.manifest.fields
        self._kinds = {field.name: field.type for field in self._fields}
        self._anchor = next((field.name for field in self._fields if field.type == "image"), None)
        self._boxes = [field.name for field in self._fields if field.type == "boxes"]
        if compiled is not None:
            check_fields(compiled, self._kinds)

    def make(self, row: int, epoch: int) -> dict[str, Any]:
        """Return the sample in a row, by field."""
        keys = self._draw_keys(row, epoch)
        places = [self._place(each) for each in self._rows(row, epoch)]
        # Pixels first: their errors name the row.
        pixels = {field.name: self._pixels(places, field, keys) for field in self._fields if field.is_pixels}
        moved = self._moved(places, keys) if keys and self._anchor is not None else {}
        return {
            field.name: pixels[field.name]
            if field.is_pixels
            else moved[field.name]
            if field.name in moved
            else self._value(places[0], field.name)
            for field in self._fields
        }

    def _rows(self, row: int, epoch: int) -> list[int]:
        """Return the rows that a sample is made of: its own, and those of its partners in a mosaic."""
        tiles = None if self._compiled is None else self._compiled.tiles
        if tiles is None:
            return [row]
        dataset = self._dataset
        happens, positions = tiles.partners(np.array([row]), len(dataset), seed=dataset.seed, epoch=epoch)
        return [row, *dataset.gather.rows(positions[0]).tolist()] if happens[0] else [row]

    def _place(self, row: int) -> Place:
        return Place(row, *self._files.index.locate(row))

    def _draw_keys(self, row: int, epoch: int) -> list[Key]:
        """Return the key of the random draws of each view of a sample; none if there are no declarative transforms."""
        views = self._compiled.views if self._compiled is not None and self._compiled.transforms else 0
        return [{"seed": self._dataset.seed, "epoch": epoch, "sample": row, "view": view} for view in range(views)]

    def _pixels(self, places: list[Place], field: Field, keys: list[Key]) -> Any:
        """Decode an image and apply the declarative transforms."""
        if self._compiled is None or self._compiled.tiles is None:
            return self.read_image(places[0], field, keys)
        mask = field.type == "mask"
        tiles = self._compiled.tiles.mask if mask else self._compiled.tiles.image
        parts = [self.read_image(place, field, keys, tile) for place, tile in zip(places, tiles, strict=False)]
        canvas = self._compiled.mask if mask else self._compiled.image
        try:
            return make_canvas(canvas, parts, keys[0])
        except TransformError as error:
            raise TransformError(f"{self._dataset.row_name(places[0].row)}: field {field.name!r}: {error}") from error

    def read_image(self, place: Place, field: Field, keys: list[Key], transform: _core.Transform | None = None) -> Any:
        """Return the pixels of an image: all views of it, or what one transform makes."""
        renditions = place.batch.renditions[field.name][0]
        at, dataset = place.at, self._dataset
        shard, offset, code = renditions.shard[at], renditions.offset[at], renditions.format[at]
        try:
            data = self._files.shards.read(shard, offset, renditions.length[at])
            # The checksums of the formats themselves would not notice that the dataset has been built again.
            if crc32c(data) != renditions.checksum[at]:
                raise CorruptImage("the checksum of the bytes does not match the index")
            channels, dtype = renditions.channels[at], renditions.dtype[at]
            color = "index" if field.type == "mask" else decode_color(dataset.color, code, channels, dtype)
            groups = None if transform is None else [(transform, 1)]
            if groups is None and self._compiled is not None and keys:
                groups = self._compiled.core_groups(field.type)
            corners = self._corners(place)
            return self._transformed(data, code, groups, keys, color, dtype in COLOR_DTYPE_CODES, corners)
        except (HeadraceError, ValueError) as error:
            path = dataset.shard_location(shard)
            where = f"{dataset.row_name(place.row)}: field {field.name!r} at offset {offset} of {path}"
            kind = type(error) if isinstance(error, HeadraceError) else TransformError
            raise kind(f"{where}: {error}") from error

    def _transformed(
        self,
        data: memoryview,
        code: int,
        groups: list[tuple[_core.Transform, int]] | None,
        keys: list[Key],
        color: formats.Color,
        has_color: bool,
        corners: Any,
    ) -> Any:
        """Return the pixels of a sample: an array, `[views, …]` for several, or with `MultiCrop` a tuple of arrays."""
        form, max_pixels = decoder(code), self._dataset.max_pixels
        if groups is None:
            return form.decode(data, color=color, max_pixels=max_pixels)
        views = [transform for transform, n in groups for _ in range(n)]
        made: list[Any]
        if code in _core.core_formats():
            shape = form.probe(data)
            for transform, key in zip(views, keys, strict=True):
                check_made_pixels(form, shape, transform, [key], max_pixels, corners)
            if len(views) == 1:
                return views[0].run(data, code, has_color=has_color, **keys[0], boxes=corners)
            draws = {name: keys[0][name] for name in ("seed", "epoch", "sample")}
            made = _core.run_views(groups, data, code, has_color=has_color, **draws, boxes=corners)
        else:
            image = form.decode(data, color=color, max_pixels=max_pixels)
            applied = (transform.apply(image, **key, boxes=corners) for transform, key in zip(views, keys, strict=True))
            made = [list(islice(applied, n)) for _, n in groups]
        made = [np.stack(group) if isinstance(group, list) else group for group in made]
        if len(made) > 1:
            return tuple(made)
        return made[0] if len(keys) > 1 else made[0][0]

    def _corners(self, place: Place) -> Any:
        """Return the boxes that a crop looks at; None if none does."""
        if self._compiled is None or not self._compiled.needs_boxes:
            return None
        return np.ascontiguousarray(self._value(place, self._boxes[0]).xyxy, np.float32).reshape(-1, 4)

    def _moved(self, places: list[Place], keys: list[Key]) -> dict[str, Any]:
        """Return the boxes of a sample, and what belongs to them, as they move with its first image: one per view."""
        compiled = cast("transforms.Compiled", self._compiled)
        sizes = [self._size_at(place) for place in places]
        keep: BoxFilter = self._dataset.box_filter
        moved: dict[str, Any] = {}
        for name in self._boxes:
            followers = [field.name for field in self._fields if field.of == name]
            given = [
                Targets(self._value(place, name), {each: self._value(place, each) for each in followers})
                for place in places
            ]
            views = [
                join_targets(
                    [
                        motion.move(targets, self._kinds, keep, self._dataset.flip_pairs)
                        for targets, motion in zip(
                            given, compiled.motions(sizes, key, [each.boxes.xyxy for each in given]), strict=True
                        )
                    ]
                )
                for key in keys
            ]
            moved[name] = _single([each.boxes for each in views])
            moved |= {each: _single([view.lists[each] for view in views]) for each in followers}
        return moved

    def size(self, row: int) -> tuple[int, int]:
        """Return height and width of the first image of a sample."""
        return self._size_at(self._place(row))

    def _size_at(self, place: Place) -> tuple[int, int]:
        renditions = place.batch.renditions[str(self._anchor)][0]
        height, width = renditions.height[place.at], renditions.width[place.at]
        if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
            raise CorruptDataset(
                f"{self._dataset.row_name(place.row)}: height and width must be 1 to {MAX_SIDE}; the index has "
                f"{height} and {width}"
            )
        return height, width

    def _value(self, place: Place, name: str) -> Any:
        return read_value(self._dataset, place, name)


def read_value(dataset: Dataset, place: Place, name: str) -> Any:
    """Return the value of a field that has no pixels."""
    if name in place.batch.tensors:
        return stored_tensor(dataset, place, name).array()
    values: Mapping[str, Any] = place.batch.values
    try:
        return values[name][place.at]
    except (ValueError, IndexError) as error:
        raise CorruptDataset(f"{dataset.row_name(place.row)}: field {name!r}: {error}") from error


def stored_tensor(dataset: Dataset, place: Place, name: str) -> StoredTensor:
    """Read a tensor and compare its checksum."""
    read = dataset._files.shards.read  # noqa: SLF001 - both belong to this room
    try:
        return read_tensor(read, dataset.fields[name], place.batch.tensors[name], place.at)
    except (CorruptDataset, ValueError, IndexError) as error:
        raise CorruptDataset(f"{dataset.row_name(place.row)}: field {name!r}: {error}") from error


def _single(views: list[Any]) -> Any:
    """Return the only view, or the list of several."""
    return views[0] if len(views) == 1 else views
