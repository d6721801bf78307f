# SPDX-License-Identifier: Apache-2.0
"""Samples that a user's functions had in their hands, stacked into a batch as PyTorch's own collate would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from headrace.errors import LoaderError
from headrace.loader.batch._output import Output
from headrace.loader.batch._ragged import RaggedRule, shape_and_dtype
from headrace.records import Boxes

Namer: TypeAlias = Callable[[int], str]
"""Gives a sample's name by its place in the batch."""


class Collator:
    """Joins samples by their parts: dicts, tuples, arrays and numbers; what is none of these becomes a list."""

    def __init__(self, output: Output, rule: RaggedRule) -> None:
        self._output, self._rule = output, rule

    def join(self, samples: list[Any], name: Namer) -> Any:
        if samples and isinstance(samples[0], dict):
            return self._join_dicts(samples, name)
        return self._join_values("sample", samples, name)

    def _join_dicts(self, samples: list[Any], name: Namer) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        for field in samples[0]:
            column = [_entry(samples, at, field, name) for at in range(len(samples))]
            if self._pads(column):
                arrays = [value if isinstance(value, np.ndarray) else self._output.to_numpy(value) for value in column]
                entries = self._rule.entries(field, arrays, name)
                batch.update({key: self._output.tensor(np.asarray(stack)) for key, stack in entries.items()})
            else:
                batch[field] = self._join_values(field, column, name)
        return batch

    def _pads(self, column: list[Any]) -> bool:
        return self._rule.ragged == "pad" and all(self._is_array(value) and value.ndim >= 2 for value in column)

    def _is_array(self, value: Any) -> bool:
        return isinstance(value, np.ndarray) or self._output.is_tensor(value)

    def _join_values(self, field: str, values: list[Any], name: Namer) -> Any:
        first = values[0] if values else None
        for kinds, dtype in _NUMBERS:
            if isinstance(first, kinds):
                return self._output.tensor(np.array(values, dtype))
        if isinstance(first, dict):
            return self._join_dicts(values, name)
        if isinstance(first, tuple) and not isinstance(first, Boxes):
            parts = [self._join_values(f"{field}[{at}]", list(part), name) for at, part in enumerate(zip(*values))]  # noqa: B905
            return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
        if values and all(self._is_array(value) for value in values):
            return self._join_arrays(field, values, name)
        return values

    def _join_arrays(self, field: str, values: list[Any], name: Namer) -> Any:
        tensors = [self._output.tensor(value) if isinstance(value, np.ndarray) else value for value in values]
        if len({shape_and_dtype(tensor) for tensor in tensors}) == 1:
            return self._output.stack(tensors)
        if self._rule.ragged == "error" and max(tensor.ndim for tensor in tensors) >= 2:
            raise self._rule.refusal(field, tensors, name)
        return tensors


# A truth value is a number to Python, so it comes first.
_NUMBERS: tuple[tuple[tuple[type, ...], Any], ...] = (
    ((bool, np.bool_), np.bool_),
    ((int, np.integer), np.int64),
    ((float, np.floating), np.float32),
)


def _entry(samples: list[Any], at: int, field: str, name: Namer) -> Any:
    try:
        return samples[at][field]
    except KeyError:
        raise LoaderError(
            f"the transforms gave {name(0)} the entry {field!r}, and {name(at)} none: give all samples the same "
            f"entries, or set a collate_fn"
        ) from None
