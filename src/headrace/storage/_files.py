# SPDX-License-Identifier: Apache-2.0
"""Files that many threads read at any offset, opened once and kept open; and a limit on how fast they read."""

from __future__ import annotations

import contextlib
import os
import time
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

from headrace.errors import CorruptDataset
from headrace.files import open_file, read_at

_MAX_OPEN = 256
"""Open files to keep. A process may often have only 1024, and the training script needs most of them."""


class Files:
    """Open files by path. Thread-safe; reading releases the GIL."""

    def __init__(self) -> None:
        self._handles: dict[str, Handle] = {}
        self._lock = Lock()

    def n_bytes(self, path: str | PathLike[str]) -> int:
        """Return the size of a file."""
        return os.fstat(self.handle(path).number).st_size

    def read_into(self, path: str | PathLike[str], offset: int, memory: Any) -> None:
        """Fill a writable buffer from an offset of a file.

        Raises:
            CorruptDataset: The file is missing, cannot be read, or ends before the buffer is full.

        """
        handle, wanted = self.handle(path), memoryview(memory).nbytes
        try:
            done = read_at(handle.number, offset, memory)
        except OSError as error:
            raise CorruptDataset(
                f"{path}: {wanted} bytes at offset {offset} cannot be read: {error.strerror}; restore it or build again"
            ) from None
        if done < wanted:
            raise CorruptDataset(f"{path} is truncated at offset {offset + done}; restore it or build again")

    def handle(self, path: str | PathLike[str]) -> Handle:
        """Return the open file. It stays open as long as the handle is referenced.

        Raises:
            CorruptDataset: The file is missing or cannot be opened.

        """
        name = os.fspath(path)
        with self._lock:
            handle = self._handles.get(name)
            if handle is None:
                if len(self._handles) >= _MAX_OPEN:
                    self._handles.clear()  # handles that a thread is using stay open
                handle = self._handles[name] = Handle(name)
            return handle

    def close(self) -> None:
        """Close all files; a file that a thread is reading is closed after the read."""
        with self._lock:
            self._handles.clear()


class Handle:
    """An open file, closed when the last reference is gone."""

    def __init__(self, path: str) -> None:
        self.number = -1
        try:
            self.number = open_file(path)
        except FileNotFoundError:
            raise CorruptDataset(f"{Path(path)} is missing; restore it or build again") from None
        except OSError as error:
            raise CorruptDataset(f"{Path(path)} cannot be read: {error.strerror}") from None

    def __del__(self) -> None:
        if self.number >= 0:
            with contextlib.suppress(OSError):
                os.close(self.number)


class Pace:
    """Limits the total read rate of all threads that share it, to emulate slower storage.

    Args:
        rate: Bytes per second; None means no limit.

    """

    def __init__(self, rate: float | None = None) -> None:
        self._lock = Lock()
        self._free_at = 0.0
        self.rate = rate

    def wait(self, n_bytes: int) -> None:
        """Sleep until a device of this rate would have read `n_bytes`, after all earlier requests."""
        rate = self.rate
        if rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + n_bytes / rate
            pause = self._free_at - now
        time.sleep(pause)
