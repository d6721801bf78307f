# SPDX-License-Identifier: Apache-2.0
"""State that a dataset shares with its worker processes: the epoch, and how often each row was visited.

Without `set_epoch`, PyTorch's `DataLoader` would get the same crops in every epoch. So the visits of each row are
counted in shared memory: its first visit draws as in epoch 0, its second as in epoch 1, whichever worker process makes
it and however long workers live. The count equals the epoch as long as every epoch visits every sample once. A loop
that stops early may have counted samples that workers had prefetched: call `set_epoch` if runs must be reproducible.

The memory has no name in the file system, so it disappears with the processes. A forked worker inherits the mapping. A
spawned one receives the file descriptor from multiprocessing while it starts (`DupFd`). Any other pickle contains a
copy of the bytes.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import warnings
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any

import numpy as np


class SharedBytes:
    """Anonymous memory that is shared with child processes, forked or spawned."""

    def __init__(self, content: bytes | int) -> None:
        """Hold a copy of some bytes, or a number of zeros, which use no memory until they are written to."""
        handle = _anonymous_file()
        os.ftruncate(handle, content if isinstance(content, int) else len(content))
        self._attach(handle)
        if not isinstance(content, int):
            self.memory[:] = content

    def _attach(self, handle: int) -> None:
        self._handle = handle
        self.memory = mmap.mmap(handle, os.fstat(handle).st_size)

    def __del__(self) -> None:
        handle = self.__dict__.get("_handle")
        if handle is not None:
            os.close(handle)

    def __reduce__(self) -> tuple[Any, ...]:
        if context.get_spawning_popen() is None:
            return SharedBytes, (self.memory[:],)
        return _receive, (reduction.DupFd(self._handle),)


def _receive(duplicate: Any) -> SharedBytes:
    shared = SharedBytes.__new__(SharedBytes)
    shared._attach(duplicate.detach())  # noqa: SLF001
    return shared


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headrace", os.MFD_CLOEXEC)
    handle, path = tempfile.mkstemp(prefix="headrace-")
    Path(path).unlink()
    return handle


class EpochCounter:
    """The epoch of a dataset and its views. All worker processes see a change at once, also persistent ones."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._attach(SharedBytes(16), SharedBytes(max(4, 4 * n_rows)))

    def _attach(self, epoch: SharedBytes, visits: SharedBytes) -> None:
        self._shared_epoch, self._shared_visits = epoch, visits
        self._epoch = memoryview(epoch.memory).cast("q")  # the epoch, and 1 if `set_epoch` was called
        self._visits = np.frombuffer(visits.memory, np.uint32)  # by row of the complete dataset
        self._n_single_draws = 0  # by `ds[i]` in this process
        self._warned = False

    @property
    def epoch(self) -> int:
        return int(self._epoch[0])

    def set_epoch(self, epoch: int) -> None:
        self._epoch[0], self._epoch[1] = epoch, 1

    def next_epoch_of(self, row: int) -> int:
        """Return the epoch for the random draws of a row, and count the visit."""
        if self._epoch[1]:
            return self.epoch
        visit = int(self._visits[row])
        self._visits[row] = visit + 1
        return visit

    def epoch_of(self, row: int, *, warn: bool) -> int:
        """Return the epoch for the random draws of a row that is read by `ds[i]`.

        A dataset class of the user that wraps this one reads rows one by one. In a `DataLoader` worker these visits are
        counted. Elsewhere a new epoch cannot be recognized, and one warning is given if `warn`.
        """
        if self._epoch[1] or not warn:
            return self.epoch
        if _in_worker():
            return self.next_epoch_of(row)
        self._n_single_draws += 1
        if self._n_single_draws > self._n_rows and not self._warned:
            self._warned = True
            warnings.warn(
                f"more than {self._n_rows} samples were drawn one by one in epoch 0: their random transforms repeat; "
                f"call dataset.set_epoch(epoch) at the start of every epoch",
                stacklevel=3,
            )
        return self.epoch

    def __getstate__(self) -> dict[str, Any]:
        # Only a pickle that starts a process has the counts, which take four bytes per sample.
        visits = self._shared_visits if context.get_spawning_popen() is not None else None
        return {"rows": self._n_rows, "epoch": self._shared_epoch, "visits": visits}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._n_rows = state["rows"]
        self._attach(state["epoch"], state["visits"] or SharedBytes(max(4, 4 * self._n_rows)))


def _in_worker() -> bool:
    data = sys.modules.get("torch.utils.data")  # if PyTorch was never imported, this is not one of its workers
    return data is not None and data.get_worker_info() is not None
