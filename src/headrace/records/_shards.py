# SPDX-License-Identifier: Apache-2.0
"""Shards, mapped when first read, within the handles that a process may have open."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

from headrace.errors import CorruptDataset
from headrace.records._manifest import Shard, shard_name

# From this size on a rendition is asked for as a whole before it is read: the kernel would else fetch a cold file in
# windows of 128 KiB, one after the other.
_HINT_BYTES = 128 << 10
_PAGE = mmap.PAGESIZE


class ShardMaps:
    """The mapped shards of one dataset in one process. Safe to use from many threads, and after a fork."""

    def __init__(self, folder: Path, shards: tuple[Shard, ...], check_current: Callable[[Path], None]) -> None:
        self._folder = folder
        self._shards = shards
        self._check_current = check_current
        self._maps: dict[int, tuple[mmap.mmap, memoryview]] = {}
        self._limit = _most_maps()

    def read(self, shard: int, offset: int, length: int) -> memoryview:
        """View `length` bytes of a shard; the view keeps the map alive."""
        entry = self._maps.get(shard)
        if entry is None:
            entry = self._map(shard)
        mapped, view = entry
        if length < 1 or offset + length > len(view):
            raise CorruptDataset(
                f"{self._folder / shard_name(shard)}: the index has {length} bytes at offset {offset}, "
                f"but the shard has {len(view)}: restore the index or build again"
            )
        if length >= _HINT_BYTES:
            start = offset - offset % _PAGE
            mapped.madvise(mmap.MADV_WILLNEED, start, offset + length - start)
        return view[offset : offset + length]

    def _map(self, shard: int) -> tuple[mmap.mmap, memoryview]:
        if shard >= len(self._shards):
            raise CorruptDataset(f"{self._folder}: the index names shard {shard} of {len(self._shards)}")
        path, expected = self._folder / shard_name(shard), self._shards[shard].n_bytes
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise CorruptDataset(f"{path} is missing: restore it or build again") from None
        try:
            found = os.fstat(handle).st_size
            if found != expected or found == 0:
                raise CorruptDataset(
                    f"{path}: offset {min(found, expected)}: the shard has {found} bytes and should have {expected}; "
                    f"restore it or build again"
                )
            self._check_current(self._folder)
            mapped = _map_file(handle, found)
        finally:
            os.close(handle)
        if len(self._maps) >= self._limit:
            self._maps.clear()  # views in use keep theirs; a lock-free LRU would cost more than mapping again
        entry = (mapped, memoryview(mapped))
        self._maps[shard] = entry
        return entry


if sys.version_info >= (3, 13):

    def _map_file(handle: int, size: int) -> mmap.mmap:
        return mmap.mmap(handle, size, access=mmap.ACCESS_READ, trackfd=False)

    def _most_maps() -> int:
        return 16384  # a quarter of Linux' default number of maps for a process

else:

    def _map_file(handle: int, size: int) -> mmap.mmap:
        return mmap.mmap(handle, size, access=mmap.ACCESS_READ)

    def _most_maps() -> int:
        # Until Python 3.13 every map holds a file handle; leave most of them to the trainer.
        import resource  # noqa: PLC0415

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return 4096 if soft == resource.RLIM_INFINITY else max(16, min(4096, soft // 4))
