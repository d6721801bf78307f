# SPDX-License-Identifier: Apache-2.0
"""Files read at any place by many threads, opened once and kept open."""

from __future__ import annotations

import contextlib
import os
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

from headrace.errors import CorruptDataset
from headrace.files import open_file, read_at

_MOST_OPEN = 256
"""Handles that are kept; the limit of a process is often 1024, and most of those are the trainer's."""


class Files:
    """Handles of files by their paths. Safe to use from many threads; a thread that reads lets go of the GIL."""

    def __init__(self) -> None:
        self._handles: dict[str, Handle] = {}
        self._lock = Lock()

    def n_bytes(self, path: str | PathLike[str]) -> int:
        """The size of a file."""
        handle = self.handle(path)
        return os.fstat(handle.number).st_size

    def read_into(self, path: str | PathLike[str], offset: int, memory: Any) -> None:
        """Fill a writable buffer with what a file has from an offset on.

        Raises:
            CorruptDataset: The file is missing or cannot be read, or ends before the buffer is full.

        """
        handle, wanted = self.handle(path), memoryview(memory).nbytes
        try:
            done = read_at(handle.number, offset, memory)
        except OSError as error:
            raise CorruptDataset(
                f"{path}: {wanted} bytes at offset {offset} cannot be read: {error.strerror}; restore it or build again"
            ) from None
        if done < wanted:
            raise CorruptDataset(
                f"{path} ends at offset {offset + done}, too early: it was cut short; restore it or build again"
            )

    def handle(self, path: str | PathLike[str]) -> Handle:
        """The open file, for those who read it themselves; open as long as somebody has it.

        Raises:
            CorruptDataset: It is missing or cannot be opened.

        """
        name = os.fspath(path)
        with self._lock:
            handle = self._handles.get(name)
            if handle is None:
                if len(self._handles) >= _MOST_OPEN:
                    self._handles.clear()  # those in use stay open until they are read
                handle = self._handles[name] = Handle(name)
            return handle

    def close(self) -> None:
        """Close all files; those that a thread is reading from when it has read."""
        with self._lock:
            self._handles.clear()


class Handle:
    """An open file by its number, closed when nobody has it any more."""

    def __init__(self, path: str) -> None:
        self.number = -1
        try:
            self.number = open_file(path)
        except FileNotFoundError:
            raise CorruptDataset(f"{Path(path)} is missing: restore it or build again") from None
        except OSError as error:
            raise CorruptDataset(f"{Path(path)} cannot be read: {error.strerror}") from None

    def __del__(self) -> None:
        if self.number >= 0:
            with contextlib.suppress(OSError):
                os.close(self.number)
