# SPDX-License-Identifier: Apache-2.0
"""Read the encoded bytes of a batch: the head of each image, then its tiles, directly to the staging memory.

One call of the core reads a whole batch without the GIL. Failures are rare; they are examined here image by image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.codec import inspect
from headrace.errors import CorruptDataset, CorruptImage, HeadraceError
from headrace.loader.batch._stats import Clock, Figures
from headrace.records import Dataset
from headrace.records.manifest import shard_name
from headrace.records.schema import DTYPE_CODES, DTYPE_NAMES, FORMAT_NAMES
from headrace.records.shards.local import ShardFiles
from headrace.storage import Handle, Pace

Ints = npt.NDArray[np.int64]

# As in the engine: files up to this size are read at once; of larger ones the head is read first.
_SMALL_FILE = 128 << 10
_HEAD_GUESS = 16 << 10
_CACHE_LINE = 64
# The core's codes for dtypes of samples, by the codes of the index.
_SAMPLE_KINDS = {code: DTYPE_CODES[name] - DTYPE_CODES["uint8"] for code, name in DTYPE_NAMES.items()}


class ImageHead(NamedTuple):
    """An image whose head was read and agrees with the index. The memory is reused for the next batch."""

    head: npt.NDArray[np.uint8]
    size: int
    file: Handle
    shard: int
    offset: int
    format: str


class EncodedImages:
    """Reads images of one dataset. For one thread; the core uses helper threads."""

    def __init__(self, dataset: Dataset, threads: int, pace: Pace) -> None:
        self.shards = ShardFiles(dataset.path, dataset.manifest.shards, dataset.manifest.check_current)
        self.pace = pace
        self._threads = threads
        self._memory = np.empty(0, np.uint8)

    def threads_for(self, images: int) -> int:
        """Return how many threads to use for so many images."""
        return max(1, min(self._threads, images // 4))

    def read(self, columns: Mapping[str, npt.NDArray[Any]], figures: Figures) -> list[ImageHead | HeadraceError]:
        """Read the heads of images, given their columns of the index. Return a head or an error for each.

        Small files are read completely. The heads of the last call are overwritten.
        """
        clock = Clock()
        if len(columns["shard"]) == 0:
            return []
        places = [*zip(*(columns[part].tolist() for part in ("shard", "offset", "length")), strict=True)]
        failed: dict[int, HeadraceError] = {}
        handles: list[Handle | None] = [None] * len(places)
        for at, place in enumerate(places):
            try:
                handles[at] = self.shards.handle(*place)
            except HeadraceError as error:
                failed[at] = error
        offsets, sizes = (
            np.array([0 if at in failed else place[part] for at, place in enumerate(places)], np.int64)
            for part in (1, 2)
        )
        lengths = np.where(sizes <= _SMALL_FILE, sizes, _HEAD_GUESS)
        heads, unread, helper_seconds = self._read_heads(handles, offsets, lengths)
        failed |= {at: self.read_error(*places[at]) for at in unread}
        for at, more in enumerate(_core.claimed_head_bytes(heads)):
            if lengths[at] < more <= sizes[at] and at not in failed:
                lengths[at] += more
                self.pace.wait(more)
                shard, offset, _ = places[at]
                try:
                    heads[at] = np.frombuffer(self.shards.read(shard, offset, more), np.uint8)
                except HeadraceError as error:
                    failed[at] = error
        claims = np.stack([columns[part] for part in ("height", "width", "channels", "dtype")], axis=1).astype(np.int64)
        claims[:, 3] = [_SAMPLE_KINDS.get(code, -1) for code in claims[:, 3].tolist()]
        for at in _core.wrong_heads(heads, sizes, claims):
            if at not in failed:
                failed[at] = _head_error(heads[at], int(sizes[at]))
        forms = [FORMAT_NAMES[code] for code in columns["format"].tolist()]
        clock.stop(helper_seconds)
        figures.count(forms, "bytes_read", lengths.tolist())
        figures.spread(forms, read_seconds=clock.seconds, cpu_seconds=clock.cpu_seconds)
        figures.own_cpu_seconds += clock.own_cpu_seconds
        return [
            failed[at] if at in failed or handle is None else ImageHead(heads[at], size, handle, shard, offset, form)
            for at, (handle, (shard, offset, size), form) in enumerate(zip(handles, places, forms, strict=True))
        ]

    def _read_heads(
        self, handles: Sequence[Handle | None], offsets: Ints, lengths: Ints
    ) -> tuple[list[npt.NDArray[np.uint8]], list[int], float]:
        """Return (the first bytes of each image, the images that cannot be read, CPU seconds of helper threads)."""
        room = -(-lengths // _CACHE_LINE) * _CACHE_LINE
        starts = np.cumsum(room) - room
        if len(self._memory) < room.sum():
            self._memory = np.empty(int(room.sum()), np.uint8)
        numbers = np.array([-1 if handle is None else handle.number for handle in handles], np.int64)
        threads = self.threads_for(len(handles))
        unread, helper_seconds = _core.read_pieces(numbers, offsets, lengths, starts, self._memory, threads)
        self.pace.wait(int(lengths.sum()))
        ends = (starts + lengths).tolist()
        heads = [self._memory[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
        return heads, unread, helper_seconds

    def read_error(self, shard: int, offset: int, length: int) -> HeadraceError:
        """Return the error of reading bytes that could not be read."""
        try:
            self.shards.read(shard, offset, length)
        except HeadraceError as error:
            return error
        return CorruptDataset(
            f"{shard_name(shard)} at offset {offset}: reading failed once and then succeeded: check the storage"
        )


class StoredTiles:
    """The tiles of images whose heads were read: a `TileSource` of `kernels`."""

    def __init__(self, images: Sequence[ImageHead], reader: EncodedImages, figures: Figures) -> None:
        self.heads = [image.head for image in images]
        self.sizes = np.array([image.size for image in images], np.int64)
        self.clock = Clock()  # the time that `fetch` took
        self._images, self._reader, self._figures = images, reader, figures

    def fetch(self, tiles: Ints, payload: npt.NDArray[np.uint8]) -> None:
        """Read the tiles, or copy those of small files that are in memory already."""
        self.clock = Clock()
        images, reader = self._images, self._reader
        files = np.array([image.file.number for image in images], np.int64)
        offsets = np.array([image.offset for image in images], np.int64)
        threads = reader.threads_for(len(images))
        try:
            read, helper_seconds = _core.fetch_tiles(self.heads, self.sizes, files, offsets, tiles, payload, threads)
        except CorruptDataset as error:
            image = images[error.index or 0]
            why = reader.read_error(image.shard, image.offset, image.size)
            named = CorruptDataset(f"image {error.index}: {why}")
            named.index = error.index
            raise named from None
        reader.pace.wait(int(read.sum()))
        self.clock.stop(helper_seconds)
        forms = [image.format for image in images]
        self._figures.count(forms, "bytes_read", read.tolist())
        self._figures.spread(forms, read_seconds=self.clock.seconds, cpu_seconds=self.clock.cpu_seconds)
        self._figures.own_cpu_seconds += self.clock.own_cpu_seconds


def _head_error(head: npt.NDArray[np.uint8], size: int) -> HeadraceError:
    image = np.empty(size, np.uint8)  # only the head is examined
    image[: len(head)] = head
    encoded: Any = image
    try:
        inspect(encoded)
    except HeadraceError as error:
        return error
    return CorruptImage("the image does not have the size that the index claims")
