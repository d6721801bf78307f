# SPDX-License-Identifier: Apache-2.0
"""Read the encoded bytes of a batch: the head of each image, then its tiles, directly to the staging memory.

One call of the core reads a whole batch without the GIL. Failures are rare; they are examined here image by image.
"""

from __future__ import annotations

import os
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
from headrace.storage import Files, Handle, Pace

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
    path: str
    offset: int
    format: str


class EncodedImages:
    """Reads images of one dataset. For one thread; the core uses helper threads."""

    def __init__(self, dataset: Dataset, threads: int, pace: Pace) -> None:
        self._paths = [str(dataset.path / shard_name(number)) for number in range(len(dataset.manifest.shards))]
        self._sizes = np.array([shard.n_bytes for shard in dataset.manifest.shards], np.int64)
        self._dataset, self._checked = dataset, dict[int, Handle]()
        self._threads = threads
        self._memory = np.empty(0, np.uint8)
        self.files, self.pace = Files(), pace

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
        shards, offsets, sizes = (columns[part].astype(np.int64) for part in ("shard", "offset", "length"))
        failed = self._outside_shards(shards, offsets, sizes)
        handles = self._open(shards, failed)
        paths = ["" if handle is None else self._paths[shard] for handle, shard in zip(handles, shards, strict=True)]
        lengths = np.where(sizes <= _SMALL_FILE, sizes, _HEAD_GUESS)
        lengths[list(failed)] = 0
        heads, helper_seconds = self._read_heads(handles, paths, offsets, lengths, failed)
        for at, more in enumerate(_core.claimed_head_bytes(heads)):
            if lengths[at] < more <= sizes[at] and at not in failed:
                lengths[at] += more
                heads[at] = np.empty(more, np.uint8)
                self.pace.wait(more)
                try:
                    self.files.read_into(paths[at], int(offsets[at]), heads[at])
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
        parts = zip(heads, sizes.tolist(), handles, paths, offsets.tolist(), forms, strict=True)
        return [
            failed[at] if at in failed or handle is None else ImageHead(head, size, handle, path, offset, form)
            for at, (head, size, handle, path, offset, form) in enumerate(parts)
        ]

    def _read_heads(
        self,
        handles: Sequence[Handle | None],
        paths: Sequence[str],
        offsets: Ints,
        lengths: Ints,
        failed: dict[int, HeadraceError],
    ) -> tuple[list[npt.NDArray[np.uint8]], float]:
        """Return (the first bytes of each image, CPU seconds of helper threads)."""
        room = -(-lengths // _CACHE_LINE) * _CACHE_LINE
        starts = np.cumsum(room) - room
        if len(self._memory) < room.sum():
            self._memory = np.empty(int(room.sum()), np.uint8)
        numbers = np.array([-1 if handle is None else handle.number for handle in handles], np.int64)
        threads = self.threads_for(len(handles))
        unread, helper_seconds = _core.read_pieces(numbers, offsets, lengths, starts, self._memory, threads)
        self.pace.wait(int(lengths.sum()))
        for at in unread:
            failed[at] = self.read_error(paths[at], int(offsets[at]), int(lengths[at]))
        ends = (starts + lengths).tolist()
        heads = [self._memory[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
        return heads, helper_seconds

    def _outside_shards(self, shards: Ints, offsets: Ints, sizes: Ints) -> dict[int, HeadraceError]:
        """Return an error for each image that is not within a shard."""
        failed: dict[int, HeadraceError] = {}
        known = shards < len(self._paths)
        ends = self._sizes[np.where(known, shards, 0)]
        outside = (sizes < 1) | (offsets < 0) | (offsets > ends) | (sizes > ends - offsets)
        for at in np.flatnonzero(~known | outside).tolist():
            failed[at] = CorruptDataset(
                "the index names bytes beyond the end of the shard"
                if known[at]
                else f"the index names shard {shards[at]}; there are {len(self._paths)} shards"
            )
        return failed

    def _open(self, shards: Ints, failed: dict[int, HeadraceError]) -> list[Handle | None]:
        opened: dict[int, Handle | HeadraceError] = {}
        for shard in dict.fromkeys(shards[at] for at in range(len(shards)) if at not in failed):
            try:
                opened[shard] = self._checked_handle(int(shard))
            except HeadraceError as error:
                opened[shard] = error
        handles: list[Handle | None] = []
        for at, shard in enumerate(shards):
            found = None if at in failed else opened[shard]
            if isinstance(found, HeadraceError):
                failed[at], found = found, None
            handles.append(found)
        return handles

    def _checked_handle(self, shard: int) -> Handle:
        """Open a shard, and check once that it is the file that the dataset was opened with."""
        handle = self.files.handle(self._paths[shard])
        if self._checked.get(shard) is not handle:
            found, expected = os.fstat(handle.number).st_size, int(self._sizes[shard])
            if found != expected:
                how = "was cut short" if found < expected else "was changed"
                raise CorruptDataset(
                    f"{self._paths[shard]} {how}: it must have {expected} bytes and has {found}; "
                    f"restore it or build again"
                )
            self._dataset.manifest.check_current(self._dataset.path)
            self._checked[shard] = handle
        return handle

    def read_error(self, path: str, offset: int, length: int) -> HeadraceError:
        """Return the error of reading bytes that could not be read."""
        try:
            self.files.read_into(path, offset, np.empty(length, np.uint8))
        except HeadraceError as error:
            return error
        return CorruptDataset(f"{path} at offset {offset}: reading failed once and then succeeded: check the storage")

    def close(self) -> None:
        """Close the files."""
        self._checked.clear()
        self.files.close()


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
            why = reader.read_error(image.path, image.offset, image.size)
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
