# SPDX-License-Identifier: Apache-2.0
"""Memory that a dataset shares with the worker processes it is handed to.

A worker that was forked has the mapping already. One that was spawned gets the file descriptor through
multiprocessing's own channel while it starts (`DupFd`). The memory has no name in the file system: nothing outlives the
processes. A pickle that is not made to start a process carries the bytes instead.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


class SharedBytes:
    """A small piece of anonymous memory that crosses to child processes by fork and by spawn."""

    def __init__(self, content: bytes | int) -> None:
        """Hold a copy of some bytes, or that many zeros, which take no memory until they are written to."""
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


class Rows:
    """The rows that a view selects: an array that is written once and shared with workers, not copied to each."""

    def __init__(self, rows: npt.NDArray[np.int64]) -> None:
        self.array = rows
        self.array.flags.writeable = False
        self._shared: SharedBytes | None = None

    def __len__(self) -> int:
        return len(self.array)

    def __getstate__(self) -> SharedBytes | bytes:
        if context.get_spawning_popen() is None or not len(self.array):
            return self.array.tobytes()
        if self._shared is None:
            self._shared = SharedBytes(self.array.tobytes())
        return self._shared

    def __setstate__(self, state: SharedBytes | bytes) -> None:
        self._shared = state if isinstance(state, SharedBytes) else None
        memory = state.memory if isinstance(state, SharedBytes) else state
        self.array = np.frombuffer(memory, np.int64)
        self.array.flags.writeable = False
