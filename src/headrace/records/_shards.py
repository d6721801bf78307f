# SPDX-License-Identifier: Apache-2.0
"""Shards, opened when first read, within the handles that a process may have open.

They are read with `pread`, not mapped: a shard that is cut short, or lies on a bad sector, is an error and no signal.
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
"""Handles that are kept; the limit of a process is often 1024, and most of those are the trainer's."""


class ShardFiles:
    """The shards of one dataset in one process. Safe to use from many threads, and after a fork: it has no lock."""

    def __init__(self, folder: Path, shards: tuple[Shard, ...], check_current: Callable[[Path], None]) -> None:
        self._folder = folder
        self._shards = shards
        self._check_current = check_current
        self._handles: dict[int, Handle] = {}

    def read(self, shard: int, offset: int, length: int) -> memoryview:
        """Read `length` bytes of a shard into new memory."""
        handle = self._checked(shard, offset, length)
        memory = np.empty(length, np.uint8).data
        self._fill(handle, shard, offset, memory)
        return memory.toreadonly()

    def blocks(self, shard: int, offset: int, length: int) -> Iterator[memoryview]:
        """Read `length` bytes of a shard piece by piece; a piece is valid until the next is asked for."""
        handle = self._checked(shard, offset, length)
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
                f"{self._path(shard)} was cut short at offset {offset + got} since it was opened; "
                f"restore it or build again"
            )

    def _checked(self, shard: int, offset: int, length: int) -> Handle:
        """Check an extent against the shard's true size: what the index says is a claim."""
        handle = self._handles.get(shard) or self._open(shard)
        n_bytes = self._shards[shard].n_bytes
        if length < 1 or offset + length > n_bytes:
            raise CorruptDataset(
                f"{self._path(shard)}: the index has {length} bytes at offset {offset}, "
                f"but the shard has {n_bytes}: restore the index or build again"
            )
        return handle

    def _open(self, shard: int) -> Handle:
        if shard >= len(self._shards):
            raise CorruptDataset(f"{self._folder}: the index names shard {shard}; there are {len(self._shards)}")
        path, expected = self._path(shard), self._shards[shard].n_bytes
        handle = Handle(str(path))
        found = os.fstat(handle.number).st_size
        if found != expected or found == 0:
            raise CorruptDataset(
                f"{path}: offset {min(found, expected)}: the shard has {found} bytes and should have {expected}; "
                f"restore it or build again"
            )
        self._check_current(self._folder)
        if len(self._handles) >= MAX_OPEN:
            self._handles.clear()  # those in use stay open until they are read; an order of use would need a lock
        self._handles[shard] = handle
        return handle

    def _path(self, shard: int) -> Path:
        return self._folder / shard_name(shard)
