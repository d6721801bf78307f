# SPDX-License-Identifier: Apache-2.0
"""Datasets in object stores: `dataset.json` and the index are kept locally, and shards are read by ranges.

`dataset.json` is read each time a dataset is opened. The index that it names by checksums is downloaded once, and kept
in the user's cache folder under the fingerprint of the dataset.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import CorruptDataset
from headrace.files import atomic_path, write_atomic
from headrace.records.checksum import CHUNK, sum_blocks
from headrace.records.manifest import MAX_BYTES, Manifest, Shard, shard_name
from headrace.records.versions import INDEX, MANIFEST
from headrace.storage import ObjectRange, Objects, RangePart, fetch_now, join_url

_DOWNLOAD = 64 << 20
"""Bytes of the index to request at a time."""


def cache_folder() -> Path:
    """Return the folder of this user for files that can be downloaded again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace"


class RemoteDataset:
    """A dataset under a URL. Opening it downloads the index, unless this user has it already.

    Raises:
        FileNotFoundError: There is no dataset at this URL.
        StoreError: The store cannot be read.

    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.objects = Objects(url, options)
        try:
            content, _ = self.objects.get(MANIFEST, MAX_BYTES)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{url} is not a dataset: it has no {MANIFEST}; upload a finished dataset or build it there"
            ) from None
        manifest = Manifest.from_bytes(content, join_url(url, MANIFEST))
        self.folder = cache_folder() / "indexes" / manifest.fingerprint
        """The local copy of `dataset.json` and the index."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._has_index(manifest):
            self._download_index(manifest)
        write_atomic(self.folder / MANIFEST, content, overwrite=True)
        self.shards = RemoteShards(self.objects, manifest.shards)

    def _has_index(self, manifest: Manifest) -> bool:
        path = self.folder / INDEX
        return path.is_file() and path.stat().st_size == manifest.index.n_bytes

    def _download_index(self, manifest: Manifest) -> None:
        index = manifest.index
        with atomic_path(self.folder / INDEX, secrets.token_hex(4)) as temporary:
            with temporary.open("wb") as stream:
                os.ftruncate(stream.fileno(), index.n_bytes)

                def write(part: RangePart, content: memoryview) -> None:
                    os.pwrite(stream.fileno(), content, part.to)

                for start in range(0, index.n_bytes, _DOWNLOAD):
                    n_bytes = min(_DOWNLOAD, index.n_bytes - start)
                    fetch_now(self.objects, [ObjectRange(INDEX, start, n_bytes, start)], write)
            found = sum_blocks(temporary, index.block_bytes)
            if found != (index.n_bytes, index.checksums):
                raise CorruptDataset(
                    f"{join_url(self.objects.url, INDEX)}: its checksums do not match {MANIFEST}: the upload is "
                    f"damaged or unfinished; upload it again"
                )


class RemoteShards:
    """The shards of a dataset in a store, for reading single images. Thread-safe."""

    def __init__(self, objects: Objects, shards: tuple[Shard, ...]) -> None:
        self._objects, self._shards = objects, shards

    def read(self, shard: int, offset: int, length: int) -> memoryview:
        """Return `length` bytes of a shard in new memory."""
        n_bytes = self._shards[shard].n_bytes if shard < len(self._shards) else 0
        if length < 1 or offset + length > n_bytes:
            raise CorruptDataset(
                f"{join_url(self._objects.url, shard_name(shard))}: the index has {length} bytes at offset {offset}, "
                f"but the shard has {n_bytes}; upload the index again or build again"
            )
        memory = np.empty(length, np.uint8).data

        def write(part: RangePart, content: memoryview) -> None:
            memory[part.to : part.to + part.n_bytes] = content

        fetch_now(self._objects, [ObjectRange(shard_name(shard), offset, length, 0)], write)
        return memory.toreadonly()

    def blocks(self, shard: int, offset: int, length: int) -> Iterator[memoryview]:
        """Yield `length` bytes of a shard in pieces."""
        content = self.read(shard, offset, length)
        for start in range(0, length, CHUNK):
            yield content[start : start + CHUNK]

    def close(self) -> None:
        pass
