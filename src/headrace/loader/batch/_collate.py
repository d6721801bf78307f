# SPDX-License-Identifier: Apache-2.0
"""Join samples to a batch: samples of different shapes, and samples that user functions have returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import LoaderError
from headrace.loader._options import Layout, Ragged
from headrace.loader.batch.output import Output
from headrace.loader.pixels._engine import Stack, stacked
from headrace.records import Boxes

RowNamer: TypeAlias = Callable[[int], str]
"""Returns the name of a sample by its position in the batch, for messages."""

MASK_FILL = 255
"""The padding of masks: the label that loss functions usually ignore. Images are padded with 0."""


class RaggedRule:
    """How samples of different shapes become a field of a batch."""

    def __init__(self, ragged: Ragged, *, layout: Layout, masks: Sequence[str], fixed: Iterable[str] = ()) -> None:
        """Create the rule; `fixed` are fields of tensors, which all have one shape."""
        self.pads, self.refuses = ragged == "pad", ragged == "error"
        self._layout, self._masks, self.fixed = layout, frozenset(masks), frozenset(fixed)

    def entries(
        self, field: str, stack: Stack, row_name: RowNamer, least: tuple[int, int] = (0, 0)
    ) -> dict[str, Stack]:
        """Return the entries of a batch for a pixel field: the field and, if it is padded, its sizes.

        It is padded to at least this height and width.
        """
        if isinstance(stack, list) and len({shape_and_dtype(array) for array in stack}) == 1:
            stack = stacked(stack)
        if self.pads and len(stack):
            padded, sizes = self._pad(field, stack, row_name, least)
            return {field: padded, f"_{field}_size": sizes}
        if self.refuses and isinstance(stack, list) and stack:
            raise self.mismatch(field, stack, row_name)
        return {field: stack}

    def view_group(self, field: str, stack: Stack, row_name: RowNamer) -> Stack:
        """Return one group of views of a field. Views are not padded: samples must have one shape, or stay a list."""
        if isinstance(stack, list) and len({shape_and_dtype(array) for array in stack}) == 1:
            return np.asarray(stacked(stack))
        if isinstance(stack, list) and stack and (self.pads or self.refuses):
            raise self.mismatch(field, stack, row_name)
        return stack

    def mismatch(self, field: str, values: Sequence[Any], row_name: RowNamer) -> LoaderError:
        """Return an error that names two samples which differ in shape or dtype."""
        kinds = [shape_and_dtype(value) for value in values]
        other = next(at for at, kind in enumerate(kinds) if kind != kinds[0])
        first, second = (f"{row_name(at)} has {kinds[at][1]} {list(kinds[at][0])}" for at in (0, other))
        return LoaderError(
            f"all samples of field {field!r} must have one shape and dtype; {first}, {second}: use Resize or a crop, "
            f"color='RGB' and dtype, or set ragged='list'"
        )

    def _pad(
        self, field: str, stack: Stack, row_name: RowNamer, least: tuple[int, int]
    ) -> tuple[Stack, npt.NDArray[np.int64]]:
        dimensions = stack[0].ndim  # views may come before height and width
        rows_first = field in self._masks or dimensions == 2 or self._layout == "CHW"
        y, x = (dimensions - 2, dimensions - 1) if rows_first else (dimensions - 3, dimensions - 2)
        sizes = np.array([(array.shape[y], array.shape[x]) for array in stack], np.int64)
        height, width = (int(side) for side in np.maximum(sizes.max(axis=0), least))
        if not isinstance(stack, list) and (sizes == (height, width)).all():
            return stack, sizes
        shapes = {((*array.shape[:y], height, width, *array.shape[x + 1 :]), array.dtype) for array in stack}
        if len(shapes) > 1:
            raise self.mismatch(field, list(stack), row_name)
        ((shape, dtype),) = shapes
        fill = MASK_FILL if field in self._masks else 0
        if isinstance(stack[0], np.ndarray):
            padded = np.full((len(stack), *shape), fill, dtype)
        else:  # a tensor that a device decoded: pad it there
            padded = stack[0].new_empty((len(stack), *shape)).fill_(fill)
        for target, array in zip(padded, stack, strict=True):
            target[tuple(slice(side) for side in array.shape)] = array
        return padded, sizes


class Collator:
    """Joins samples as PyTorch's default collate does: dicts, tuples, arrays, numbers; other values become lists."""

    def __init__(self, output: Output, ragged: RaggedRule) -> None:
        self._output, self._ragged = output, ragged

    def join(self, samples: list[Any], row_name: RowNamer) -> Any:
        return self._join_values("sample", samples, row_name)

    def _join_dicts(self, samples: list[Any], row_name: RowNamer) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        for field in samples[0]:
            column = [_entry(samples, at, field, row_name) for at in range(len(samples))]
            pads = self._ragged.pads and field not in self._ragged.fixed
            if pads and all(self._is_array(value) and value.ndim >= 2 for value in column):
                arrays = [value if isinstance(value, np.ndarray) else self._output.to_numpy(value) for value in column]
                entries = self._ragged.entries(field, arrays, row_name)
                batch.update({key: self._output.tensor(np.asarray(stack)) for key, stack in entries.items()})
            else:
                batch[field] = self._join_values(field, column, row_name)
        return batch

    def _is_array(self, value: Any) -> bool:
        return isinstance(value, (np.ndarray, self._output.kind))

    def _join_values(self, field: str, values: list[Any], row_name: RowNamer) -> Any:
        first = values[0] if values else None
        for kinds, dtype in _NUMBERS:
            if isinstance(first, kinds):
                return self._output.tensor(np.array(values, dtype))
        if isinstance(first, dict):
            return self._join_dicts(values, row_name)
        if isinstance(first, tuple) and not isinstance(first, Boxes):
            parts = [self._join_values(f"{field}[{at}]", list(part), row_name) for at, part in enumerate(zip(*values))]  # noqa: B905
            return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
        if values and all(self._is_array(value) for value in values):
            return self._join_arrays(field, values, row_name)
        return values

    def _join_arrays(self, field: str, values: list[Any], row_name: RowNamer) -> Any:
        tensors = [self._output.tensor(value) if isinstance(value, np.ndarray) else value for value in values]
        if len({shape_and_dtype(tensor) for tensor in tensors}) == 1:
            return self._output.stack(tensors)
        if self._ragged.refuses and max(tensor.ndim for tensor in tensors) >= 2:
            raise self._ragged.mismatch(field, tensors, row_name)
        return tensors


# bool first: it is a subclass of int.
_NUMBERS: tuple[tuple[tuple[type, ...], Any], ...] = (
    ((bool, np.bool_), np.bool_),
    ((int, np.integer), np.int64),
    ((float, np.floating), np.float32),
)


def _entry(samples: list[Any], at: int, field: str, row_name: RowNamer) -> Any:
    try:
        return samples[at][field]
    except KeyError:
        raise LoaderError(
            f"all samples must have the same entries after the transforms; {row_name(0)} has {field!r} and "
            f"{row_name(at)} has not: change the function, or set a collate_fn"
        ) from None


def shape_and_dtype(value: Any) -> tuple[tuple[int, ...], Any]:
    return tuple(value.shape), value.dtype
