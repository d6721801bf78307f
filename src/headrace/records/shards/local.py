# SPDX-License-Identifier: Apache-2.0
"""Read shards. They are opened on first use, and only a limited number is kept open.

They are read with `pread`, not mapped, so that a truncated shard or a bad sector raises an error instead of SIGBUS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from headrace.errors import CorruptDataset
from headrace.files import read_at
from headrace.records.checksum import CHUNK
from headrace.records.manifest import Shard, shard_name
from headrace.storage import Handle

MAX_OPEN = 256
"""Open shards to keep. A process may often have only 1024 open files, and the training script needs most of them."""


class ShardFiles:
    """The shards of one dataset in one process. Thread-safe and fork-safe, because it has no lock."""

    def __init__(self, folder: Path, shards: tuple[Shard, ...], check_current: Callable[[Path], None]) -> None:
        self._folder = folder
        self._shards = shards
        self._check_current = check_current
        self._handles: dict[int, Handle] = {}

    def read(self, shard: int, offset: int, length: int) -> memoryview:
        """Return `length` bytes of a shard in new memory."""
        handle = self.handle(shard, offset, length)
        memory = np.empty(length, np.uint8).data
        self._fill(handle, shard, offset, memory)
        return memory.toreadonly()

    def blocks(self, shard: int, offset: int, length: int) -> Iterator[memoryview]:
        """Yield `length` bytes of a shard in pieces. A piece is valid until the next one is read."""
        handle = self.handle(shard, offset, length)
        memory = np.empty(min(CHUNK, length), np.uint8).data
        for start in range(0, length, CHUNK):
            block = memory[: min(CHUNK, length - start)]
            self._fill(handle, shard, offset + start, block)
            yield block

    def _fill(self, handle: Handle, shard: int, offset: int, memory: memoryview) -> None:
        try:
            got = read_at(handle.number, offset, memory)
        except OSError as error:
            raise CorruptDataset(
                f"{self._path(shard)}: {len(memory)} bytes at offset {offset} cannot be read: {error.strerror}; "
                f"restore the shard or build again"
            ) from error
        if got < len(memory):
            raise CorruptDataset(
                f"{self._path(shard)} has been truncated at offset {offset + got} since it was opened; "
                f"restore it or build again"
            )

    def handle(self, shard: int, offset: int, length: int) -> Handle:
        """Return the open file of a shard, and check that it contains a range, because the index is not trusted."""
        handle = self._handles.get(shard) or self._open(shard)
        n_bytes = self._shards[shard].n_bytes
        if length < 1 or offset + length > n_bytes:
            raise CorruptDataset(
                f"{self._path(shard)}: the index has {length} bytes at offset {offset}, but the shard has {n_bytes}; "
                f"restore the index or build again"
            )
        return handle

    def _open(self, shard: int) -> Handle:
        if shard >= len(self._shards):
            raise CorruptDataset(
                f"{self._folder}: the index names shard {shard}, but the dataset has only {len(self._shards)} shards; "
                f"restore the index or build again"
            )
        path, expected = self._path(shard), self._shards[shard].n_bytes
        handle = Handle(str(path))
        found = os.fstat(handle.number).st_size
        if found != expected or found == 0:
            raise CorruptDataset(
                f"{path}: offset {min(found, expected)}: the shard must have {expected} bytes; it has {found}; "
                f"restore it or build again"
            )
        self._check_current(self._folder)
        if len(self._handles) >= MAX_OPEN:
            self._handles.clear()  # those in use stay open; keeping the order of use would need a lock
        self._handles[shard] = handle
        return handle

    def close(self) -> None:
        """Close the files. Those that a thread is reading are closed after the read."""
        self._handles.clear()

    def _path(self, shard: int) -> Path:
        return self._folder / shard_name(shard)
