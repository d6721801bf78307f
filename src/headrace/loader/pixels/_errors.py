# SPDX-License-Identifier: Apache-2.0
"""What becomes of a sample that cannot be read or decoded: an error that names it, a gap, or another in its place."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import errors
from headrace.errors import HeadraceError, LoaderError
from headrace.loader._options import OnError
from headrace.loader._wait import StopSign, wait_for
from headrace.loader.batch._stats import MAX_NAMED_ERRORS, Meters, SampleError
from headrace.loader.order._keys import draw, epoch_key
from headrace.loader.pixels._engine import PixelBatch, PixelSource, Rows, Stack, stacked
from headrace.records import Dataset
from headrace.records.manifest import shard_name

REPLACEMENT_STREAM = 3
MOST_TRIES = 16

_log = logging.getLogger("headrace.loader")
_REMEDY = "restore the file (`headrace verify` names all that is damaged), or set on_error to 'skip' or 'replace'"


@dataclass(slots=True)
class Draft:
    """A batch under way: which samples it has, and their pixels."""

    epoch: int
    rows: Rows
    repeat: npt.NDArray[np.bool_] | None
    batch: PixelBatch


class SampleErrors:
    """Takes care of failed samples as `on_error` says."""

    def __init__(self, dataset: Dataset, names: Sequence[str], *, seed: int, on_error: OnError, meters: Meters) -> None:
        self._dataset, self._names = dataset, tuple(names)
        self._gather = dataset.gather
        self._seed, self._on_error, self._meters = seed, on_error, meters

    def settle(self, draft: Draft, source: PixelSource, stop: StopSign) -> list[Stack]:
        """Take the pixels of a finished batch. What failed in it is raised, or the draft's rows change with it."""
        failed = self._failed(draft.batch, draft.rows)
        stacks = _take(draft.batch)
        if not failed:
            return stacks
        if self._on_error == "raise":
            raise next(iter(failed.values()))
        for position, error in failed.items():
            self._report(draft, position, error)
        if self._on_error == "skip":
            return self._skip(draft, stacks, set(failed))
        return self._replace(draft, stacks, failed, source, stop)

    def _failed(self, batch: PixelBatch, rows: Rows) -> dict[int, HeadraceError]:
        """The first error of each position that has any."""
        failed: dict[int, HeadraceError] = {}
        for position, field, rendition, kind, message in sorted(batch.failures()):
            error = self._error(int(rows[position]), self._names[field], rendition, kind, message)
            failed.setdefault(position, error)
        return failed

    def _error(self, row: int, field: str, rendition: int, kind: str, message: str) -> HeadraceError:
        columns = self._gather.pixel_columns(field, rendition, np.array([row], np.int64))
        path = self._dataset.path / shard_name(int(columns["shard"][0]))
        where = f"{self._dataset.row_name(row)}: field {field!r} at offset {int(columns['offset'][0])} of {path}"
        found = getattr(errors, kind, LoaderError)
        error_class = found if isinstance(found, type) and issubclass(found, HeadraceError) else LoaderError
        return error_class(f"{where}: {message}; {_REMEDY}")

    def _report(self, draft: Draft, position: int, error: HeadraceError) -> None:
        action = "skipped" if self._on_error == "skip" else "replaced"
        told = self._meters.error_count
        self._meters.add_error(SampleError(draft.epoch, int(draft.rows[position]), action, str(error)))
        if told < MAX_NAMED_ERRORS:
            _log.warning("%s in epoch %d: %s", action, draft.epoch, error)
        elif told == MAX_NAMED_ERRORS:
            _log.warning("more samples are %s; Loader.stats() counts them", action)

    def _skip(self, draft: Draft, stacks: list[Stack], failed: set[int]) -> list[Stack]:
        keep = [position for position in range(len(draft.rows)) if position not in failed]
        draft.rows = draft.rows[keep]
        if draft.repeat is not None:
            draft.repeat = draft.repeat[keep]
        return [[stack[at] for at in keep] if isinstance(stack, list) else stack[keep] for stack in stacks]

    def _replace(
        self,
        draft: Draft,
        stacks: list[Stack],
        failed: dict[int, HeadraceError],
        source: PixelSource,
        stop: StopSign,
    ) -> list[Stack]:
        draft.rows = draft.rows.copy()
        first_rows = {position: int(draft.rows[position]) for position in failed}
        for attempt in range(MOST_TRIES):
            positions = list(failed)
            rows = np.array([self._candidate(draft.epoch, first_rows[at], attempt) for at in positions], np.int64)
            batch = source.submit(rows, draft.epoch)
            wait_for(batch, stop)
            again = self._failed(batch, rows)
            fresh = _take(batch)
            for number, position in enumerate(positions):
                if number not in again:
                    draft.rows[position] = rows[number]
                    stacks = [_put(stack, position, new[number]) for stack, new in zip(stacks, fresh, strict=True)]
            failed = {positions[number]: error for number, error in again.items()}
            if not failed:
                return stacks
        error = next(iter(failed.values()))
        raise LoaderError(f"{MOST_TRIES} samples in a row cannot take the place of a bad one; the last: {error}")

    def _candidate(self, epoch: int, row: int, attempt: int) -> int:
        """Choose a row from (seed, epoch, sample) alone, so that every run chooses the same."""
        key = epoch_key(self._seed, epoch, REPLACEMENT_STREAM)
        position = draw(draw(key, row), attempt) * len(self._dataset) >> 64
        return int(self._gather.rows(np.array([position], np.int64))[0])


def _take(batch: PixelBatch) -> list[Stack]:
    """Take a batch's pixels; where samples differ in shape, join the views of each, which do not."""
    return [[_joined(sample) for sample in stack] if isinstance(stack, list) else stack for stack in batch.take()]


def _joined(sample: Any) -> Any:
    if not isinstance(sample, list):
        return sample
    return None if any(view is None for view in sample) else stacked(sample)


def _put(stack: Stack, position: int, pixels: npt.NDArray[Any]) -> Stack:
    """Put a sample's pixels in its place; a stack that they do not fit becomes a list."""
    if not isinstance(stack, list):
        if stack.shape[1:] == pixels.shape and stack.dtype == pixels.dtype:
            stack[position] = pixels
            return stack
        stack = list(stack)
    stack[position] = pixels
    return stack
