# SPDX-License-Identifier: Apache-2.0
"""What a batch holds, whoever made it: how many images, and how many bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def count_images(batch: Any, loader: Any = None) -> int:
    """How many images a batch has: the length of the first thing in it that has one; else what the loader says.

    A list may be of images or of columns, and the first axis of an array that of one image. Where the loader has a
    batch size, the largest of these lengths that does not exceed it is right.
    """
    most = getattr(loader, "batch_size", None)
    if not isinstance(most, int) or most < 1:
        return _first_leaf(batch) or 1
    return max((length for length in _lengths(batch) if 0 < length <= most), default=most)


def _lengths(batch: Any) -> Iterator[int]:
    """Every length on the way to the first array: of lists, and of that array."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        yield from map(int, shape[:1])
    elif isinstance(batch, dict):
        first = next((value for name, value in batch.items() if not str(name).startswith("_")), None)
        yield from _lengths(first)
    elif isinstance(batch, list | tuple) and batch:
        yield len(batch)
        yield from _lengths(batch[0])


def batch_bytes(batch: Any) -> int | None:
    """Bytes of all arrays of a batch."""
    if isinstance(batch, dict):
        parts = [batch_bytes(value) for value in batch.values()]
    elif isinstance(batch, list | tuple):
        parts = [batch_bytes(value) for value in batch]
    else:
        size = getattr(batch, "nbytes", None)
        return size if isinstance(size, int) else None
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _first_leaf(batch: Any) -> int | None:
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if isinstance(batch, dict):
        columns: Iterable[Any] = (value for name, value in batch.items() if not str(name).startswith("_"))
    elif isinstance(batch, list | tuple):
        if batch and isinstance(batch[0], dict):
            return len(batch)  # samples that nobody has put together
        columns = batch
    else:
        return None
    return next((length for value in columns if (length := _column_length(value)) is not None), None)


def _column_length(value: Any) -> int | None:
    """Of a field of a batch: images of several shapes are a list."""
    return len(value) if isinstance(value, list) else _first_leaf(value)
