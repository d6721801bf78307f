# SPDX-License-Identifier: Apache-2.0
"""What a prepared batch must look like: the shape and dtype of its pixels, from the index and the transform alone.

The host checks prepared batches against it, so that an array of another shape or dtype never reaches the trainer; the
offload worker, that a recipe does not ask for a batch that no memory holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import HeadraceError, ImageTooLarge
from headrace.loader.supply import Rows, Stack
from headrace.offload.exchange._batch_file import Limits
from headrace.records import Dataset
from headrace.records.rendition import DEFINES_COLOR
from headrace.records.schema import COLOR_DTYPE_CODES, DTYPE_NAMES
from headrace.transforms import Compiled

ROWS = "_rows"
"""The rows of the dataset that the batch is made of, so that a batch of others cannot be taken for it."""

# Stored sizes that are remembered. A dataset of photographs has a few thousand, and each takes 2 µs to work out.
_MAX_KNOWN = 1 << 14
_STORED = ("height", "width", "channels", "dtype", "format")


class Shape(NamedTuple):
    """Shape and dtype of one sample's pixels, all views of it."""

    sides: tuple[int, ...]
    dtype: str
    n_bytes: int


class BatchShape:
    """What the fields of pixels of one batch look like."""

    def __init__(self, rows: Rows, fields: Mapping[str, list[Shape]]) -> None:
        self._rows, self._fields = rows, fields
        self.n_bytes = sum(shape.n_bytes for shapes in fields.values() for shape in shapes)
        """Of its pixels."""
        tensors = 1 + sum(map(len, fields.values()))
        self.limits = Limits.of(rows.nbytes + self.n_bytes, tensors)
        """How large its file may be."""

    def stacked(self, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Stack]:
        """Return the fields of a prepared batch; ValueError if its rows, shapes or dtypes are not those expected."""
        theirs = arrays.get(ROWS)
        if theirs is None or theirs.dtype != self._rows.dtype or not np.array_equal(theirs, self._rows):
            raise ValueError("its rows are not those of this batch")
        return [self._field(name, shapes, arrays) for name, shapes in self._fields.items()]

    def _field(self, name: str, shapes: list[Shape], arrays: Mapping[str, npt.NDArray[Any]]) -> Stack:
        first = shapes[0]
        if all(shape is first or shape == first for shape in shapes):
            return _checked(arrays, name, (len(shapes), *first.sides), first.dtype)
        return [_checked(arrays, f"{name}.{at}", shape.sides, shape.dtype) for at, shape in enumerate(shapes)]


def _checked(arrays: Mapping[str, npt.NDArray[Any]], name: str, sides: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"it has no array {name!r}")
    if array.shape != sides or array.dtype.name != dtype:
        raise ValueError(f"{name} must be {dtype} of shape {sides}; found {array.dtype.name} of {array.shape}")
    return array


class BatchShapes:
    """Works out what batches look like. For one thread at a time; some 20 µs for a batch of known sizes."""

    def __init__(self, dataset: Dataset, names: Sequence[str], compiled: Compiled) -> None:
        self._gather, self._views = dataset.gather, compiled.views
        types = dataset.fields
        self._transforms = {name: compiled.mask if types[name] == "mask" else compiled.image for name in names}
        self._max_pixels = compiled.max_pixels
        self._known: dict[tuple[str, int, int, int, int, int], Shape] = {}

    def of(self, rows: Rows) -> BatchShape | None:
        """Return what the batch of these rows looks like; None if one of its samples cannot be transformed.

        The shape of what comes out depends on what is stored, never on what is drawn at random. An image with more than
        `max_pixels` may fail or not, depending on its crop: such a batch is left to the host.
        """
        try:
            return BatchShape(rows, {name: self._field(name, rows) for name in self._transforms})
        except HeadraceError:
            return None

    def _field(self, name: str, rows: Rows) -> list[Shape]:
        columns = self._gather.pixel_columns(name, 0, rows)
        stored = zip(
            *(columns[part].tolist() for part in ("height", "width", "channels", "dtype", "format")), strict=True
        )
        return [self._shape(name, *each) for each in stored]

    def _shape(self, name: str, height: int, width: int, channels: int, dtype: int, form: int) -> Shape:
        key = (name, height, width, channels, dtype, form)
        found = self._known.get(key)
        if found is None:
            if height * width > self._max_pixels or dtype not in DTYPE_NAMES:
                raise ImageTooLarge(f"{height} x {width} pixels of dtype code {dtype}")
            sides, made = self._transforms[name].shape(
                height,
                width,
                channels,
                DTYPE_NAMES[dtype],
                seed=0,
                epoch=0,
                sample=0,
                has_color=channels in (2, 4) and (dtype in COLOR_DTYPE_CODES or form in DEFINES_COLOR),
            )
            sides = sides if self._views == 1 else (self._views, *sides)
            found = Shape(sides, made, math.prod(sides) * np.dtype(made).itemsize)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = found
        return found


def flat(stacks: Mapping[str, Stack], rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """Name each array of a batch; images of differing shape are one a sample: `image.0`, `image.1` and so on."""
    arrays: dict[str, npt.NDArray[Any]] = {ROWS: rows}
    for field, stack in stacks.items():
        if isinstance(stack, list):
            arrays.update({f"{field}.{at}": array for at, array in enumerate(stack)})
        else:
            arrays[field] = stack
    return arrays
