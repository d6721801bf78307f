# SPDX-License-Identifier: Apache-2.0
"""Samples that cannot be read or decoded: raise their error, skip them, or replace them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace import errors
from headrace.errors import HeadraceError, LoaderError
from headrace.loader._options import OnError
from headrace.loader._threads import StopSign, wait_for
from headrace.loader.batch._stats import MAX_NAMED_ERRORS, Meters, SampleError
from headrace.loader.order._keys import draw, epoch_key
from headrace.loader.pixels._engine import PixelBatch, PixelSource, Rows, Stack, take_pixels
from headrace.records import Dataset

REPLACEMENT_STREAM = 3
MAX_TRIES = 16

_log = logging.getLogger("headrace.loader")
_REMEDY = "restore the file (`headrace verify` lists all damage), or set on_error to 'skip' or 'replace'"


@dataclass(slots=True)
class Draft:
    """A batch in progress: its samples and their pixels."""

    epoch: int
    rows: Rows
    repeat: npt.NDArray[np.bool_] | None
    batch: PixelBatch


class SampleErrors:
    """Handles failed samples as `on_error` says."""

    def __init__(self, dataset: Dataset, names: Sequence[str], *, seed: int, on_error: OnError, meters: Meters) -> None:
        self._dataset, self._names = dataset, tuple(names)
        self._gather = dataset.gather
        self._seed, self._on_error, self._meters = seed, on_error, meters

    def settle(self, draft: Draft, source: PixelSource, stop: StopSign) -> list[Stack]:
        """Return the pixels of a finished batch. Raises failures, or changes the rows of the draft to match."""
        failed = self._failed(draft.batch, draft.rows)
        stacks = take_pixels(draft.batch)
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
        """Return the first error of each position that has one."""
        failed: dict[int, HeadraceError] = {}
        for position, field, rendition, kind, message in sorted(batch.failures()):
            error = self._error(int(rows[position]), self._names[field], rendition, kind, message)
            failed.setdefault(position, error)
        return failed

    def _error(self, row: int, field: str, rendition: int, kind: str, message: str) -> HeadraceError:
        columns = self._gather.pixel_columns(field, rendition, np.array([row], np.int64))
        path = self._dataset.shard_location(int(columns["shard"][0]))
        where = f"{self._dataset.row_name(row)}: field {field!r} at offset {int(columns['offset'][0])} of {path}"
        found = getattr(errors, kind, LoaderError)
        error_class = found if isinstance(found, type) and issubclass(found, HeadraceError) else LoaderError
        return error_class(f"{where}: {message}; {_REMEDY}")

    def _report(self, draft: Draft, position: int, error: HeadraceError) -> None:
        action = "skipped" if self._on_error == "skip" else "replaced"
        earlier = self._meters.error_count
        self._meters.error_count += 1
        if earlier < MAX_NAMED_ERRORS:
            self._meters.errors.append(SampleError(draft.epoch, int(draft.rows[position]), action, str(error)))
            _log.warning("%s in epoch %d: %s", action, draft.epoch, error)
        elif earlier == MAX_NAMED_ERRORS:
            _log.warning("more samples are %s; they are no longer logged, see Loader.stats()", action)

    def _skip(self, draft: Draft, stacks: list[Stack], failed: set[int]) -> list[Stack]:
        keep = [position for position in range(len(draft.rows)) if position not in failed]
        draft.rows = draft.rows[keep]
        if draft.repeat is not None:
            draft.repeat = draft.repeat[keep]
        return [_kept(stack, keep) for stack in stacks]

    def _replace(
        self, draft: Draft, stacks: list[Stack], failed: dict[int, HeadraceError], source: PixelSource, stop: StopSign
    ) -> list[Stack]:
        draft.rows = draft.rows.copy()
        first_rows = {position: int(draft.rows[position]) for position in failed}
        for attempt in range(MAX_TRIES):
            positions = list(failed)
            rows = np.array([self._candidate(draft.epoch, first_rows[at], attempt) for at in positions], np.int64)
            batch = source.submit(rows, draft.epoch)
            wait_for(batch, stop)
            again = self._failed(batch, rows)
            fresh = take_pixels(batch)
            for number, position in enumerate(positions):
                if number not in again:
                    draft.rows[position] = rows[number]
                    stacks = [_put(stack, position, new, number) for stack, new in zip(stacks, fresh, strict=True)]
            failed = {positions[number]: error for number, error in again.items()}
            if not failed:
                return stacks
        error = next(iter(failed.values()))
        raise LoaderError(f"{MAX_TRIES} samples in a row failed as replacements of a failed sample; the last: {error}")

    def _candidate(self, epoch: int, row: int, attempt: int) -> int:
        """Choose a row from (seed, epoch, sample) alone, so that every run chooses the same one."""
        key = epoch_key(self._seed, epoch, REPLACEMENT_STREAM)
        position = draw(draw(key, row), attempt) * len(self._dataset) >> 64
        return int(self._gather.rows(np.array([position], np.int64))[0])


def _kept(stack: Stack, keep: list[int]) -> Stack:
    """Return these samples of a field."""
    if isinstance(stack, tuple):
        return tuple(_kept(group, keep) for group in stack)
    return [stack[at] for at in keep] if isinstance(stack, list) else stack[keep]


def _put(stack: Stack, position: int, source: Stack, number: int) -> Stack:
    """Set a sample to one of `source`; a stack of another shape or dtype becomes a list."""
    if isinstance(stack, tuple):
        return tuple(_put(group, position, own, number) for group, own in zip(stack, source, strict=True))
    pixels = source[number]
    if not isinstance(stack, list):
        if stack.shape[1:] == pixels.shape and stack.dtype == pixels.dtype:
            stack[position] = pixels
            return stack
        stack = list(stack)
    stack[position] = pixels
    return stack
