# SPDX-License-Identifier: Apache-2.0
"""Images of differing shape in one batch: a list of them, padded to the largest, or an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import LoaderError
from headrace.loader._options import Layout, Ragged
from headrace.loader.pixels._engine import Stack, stacked

MASK_FILL = 255
"""What masks are padded with: the label that losses are commonly told to ignore. Images are padded with 0."""


def size_key(field: str) -> str:
    """Name the entry of a batch that tells the rows and columns of each sample of a padded field."""
    return f"_{field}_size"


class RaggedRule:
    """Says what becomes of samples of differing shape."""

    def __init__(self, ragged: Ragged, *, layout: Layout, masks: Sequence[str]) -> None:
        self.ragged, self._layout = ragged, layout
        self._masks = frozenset(masks)

    def entries(self, field: str, stack: Stack, name: Callable[[int], str]) -> dict[str, Stack]:
        """Give what a batch has of a field of pixels: the field itself, and its sizes where it is padded.

        `name` gives a sample's name by its place in the batch, for messages.
        """
        if isinstance(stack, list) and len({shape_and_dtype(array) for array in stack}) == 1:
            stack = stacked(stack)
        if self.ragged == "pad" and len(stack):
            padded, sizes = self._pad(field, stack, name)
            return {field: padded, size_key(field): sizes}
        if self.ragged == "error" and isinstance(stack, list) and stack:
            raise self.refusal(field, stack, name)
        return {field: stack}

    def refusal(self, field: str, values: Sequence[Any], name: Callable[[int], str]) -> LoaderError:
        """Say which two samples do not go together."""
        kinds = [shape_and_dtype(value) for value in values]
        other = next(at for at, kind in enumerate(kinds) if kind != kinds[0])
        return LoaderError(
            f"field {field!r}: {name(0)} has {_shown(kinds[0])}, {name(other)} has {_shown(kinds[other])}: bring them "
            f"to one size with Resize or a crop and to one kind with color='RGB' and dtype, or set ragged='list'"
        )

    def _pad(
        self, field: str, stack: Stack, name: Callable[[int], str]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        rows, columns = self._axes(field, stack[0].ndim)
        sizes = np.array([(array.shape[rows], array.shape[columns]) for array in stack], np.int64)
        if not isinstance(stack, list):
            return stack, sizes
        height, width = (int(side) for side in sizes.max(axis=0))
        shapes = {(_resized(array.shape, rows, height, columns, width), array.dtype) for array in stack}
        if len(shapes) > 1:
            raise self.refusal(field, stack, name)
        ((shape, dtype),) = shapes
        fill = MASK_FILL if field in self._masks else 0
        if isinstance(stack[0], np.ndarray):
            padded = np.full((len(stack), *shape), fill, dtype)
        else:  # a tensor that a device decoded; the padding is made there
            padded = stack[0].new_empty((len(stack), *shape)).fill_(fill)
        for place, array in zip(padded, stack, strict=True):
            place[tuple(slice(side) for side in array.shape)] = array
        return padded, sizes

    def _axes(self, field: str, dimensions: int) -> tuple[int, int]:
        """Where a sample's rows and columns are; views may stand before them."""
        if field in self._masks or dimensions == 2 or self._layout == "CHW":
            return dimensions - 2, dimensions - 1
        return dimensions - 3, dimensions - 2


def shape_and_dtype(value: Any) -> tuple[tuple[int, ...], Any]:
    return tuple(value.shape), value.dtype


def _shown(kind: tuple[tuple[int, ...], Any]) -> str:
    return f"{kind[1]} {list(kind[0])}"


def _resized(shape: tuple[int, ...], rows: int, height: int, columns: int, width: int) -> tuple[int, ...]:
    changed = list(shape)
    changed[rows], changed[columns] = height, width
    return tuple(changed)
