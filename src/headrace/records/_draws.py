# SPDX-License-Identifier: Apache-2.0
"""Which epoch the random transforms of a sample draw for, in all processes that share a dataset.

With `set_epoch` it is the one that was set. Without it, PyTorch's `DataLoader` would give the same crops in every
epoch. So the visits of each row are counted in shared memory: its first visit draws as epoch 0, its second as epoch 1,
whichever worker process makes it, and whether workers live for one epoch or for all. That is the number of the epoch as
long as every epoch visits every sample once. A loop that is left early may have counted samples that workers had
fetched ahead: call `set_epoch` where runs must be repeatable to the bit.
"""

from __future__ import annotations

import sys
import warnings
from multiprocessing import context
from typing import Any

import numpy as np

from headrace.records._shared import SharedBytes


class Draws:
    """The epoch of a dataset and its views. Worker processes see a new one at once, persistent workers too."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._attach(SharedBytes(16), SharedBytes(max(4, 4 * n_rows)))

    def _attach(self, cells: SharedBytes, visits: SharedBytes) -> None:
        self._cells, self._visits = cells, visits
        self._numbers = memoryview(cells.memory).cast("q")  # the epoch, and whether it was set
        self._counts = np.frombuffer(visits.memory, np.uint32)  # by rows of the whole dataset
        self._drawn = 0  # by `ds[i]` in this process
        self._warned = False

    @property
    def epoch(self) -> int:
        return int(self._numbers[0])

    def set_epoch(self, epoch: int) -> None:
        self._numbers[0], self._numbers[1] = epoch, 1

    def next_epoch_of(self, row: int) -> int:
        """Return the epoch to draw a row for, and count the visit."""
        if self._numbers[1]:
            return self.epoch
        visit = int(self._counts[row])
        self._counts[row] = visit + 1
        return visit

    def epoch_of(self, row: int, *, warn: bool) -> int:
        """Return the epoch to draw a row for that is asked for by itself: the same each time, but for workers.

        A dataset of the user's that wraps this one asks for rows one by one. In a worker process of a `DataLoader` they
        are counted; elsewhere nobody can tell a new epoch from a second look, and one warning is given if `warn`.
        """
        if self._numbers[1] or not warn:
            return self.epoch
        if _in_worker():
            return self.next_epoch_of(row)
        self._drawn += 1
        if self._drawn > self._n_rows and not self._warned:
            self._warned = True
            warnings.warn(
                f"more than {self._n_rows} samples were drawn one by one in epoch 0: their random transforms repeat; "
                f"call dataset.set_epoch(epoch) at the start of every epoch",
                stacklevel=3,
            )
        return self.epoch

    def __getstate__(self) -> dict[str, Any]:
        # A pickle that does not start a process carries no counts: it would carry four bytes per sample.
        visits = self._visits if context.get_spawning_popen() is not None else None
        return {"rows": self._n_rows, "cells": self._cells, "visits": visits}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._n_rows = state["rows"]
        self._attach(state["cells"], state["visits"] or SharedBytes(max(4, 4 * self._n_rows)))


def _in_worker() -> bool:
    data = sys.modules.get("torch.utils.data")  # there is no worker of PyTorch's where it was never imported
    return data is not None and data.get_worker_info() is not None
