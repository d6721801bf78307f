# SPDX-License-Identifier: Apache-2.0
"""The encoded bytes of a batch: of each image its head and the tiles that a region touches, read by many threads."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.codec import inspect
from headrace.errors import CorruptDataset, CorruptImage, HeadraceError
from headrace.loader._device_figures import Figures
from headrace.loader._device_plan import Region
from headrace.records import Dataset
from headrace.records._manifest import shard_name
from headrace.records._schema import DTYPE_NAMES, FORMAT_NAMES
from headrace.storage import Extent, Files, Pace, coalesce

# As the engine has it: files up to this size are read at once, of larger ones the head first.
_WHOLE_FILE = 128 << 10
_HEAD_GUESS = 16 << 10
_FIXED = struct.Struct("<8xHHB3xII")  # width, height, log2 of the tile width, bytes of metadata and of ranks
_TILE_HEIGHT = 32


_SHARES = 4  # of a batch, for each thread: so that none has much more to wait for than the others

_Read: TypeAlias = tuple[npt.NDArray[np.uint8] | HeadraceError, dict[str, float]]


class Wanted(NamedTuple):
    """An image by its row of a batch's columns, and the regions of it that are wanted."""

    columns: Mapping[str, npt.NDArray[Any]]
    position: int
    regions: tuple[Region, ...]


class EncodedImages:
    """Reads images of one dataset. Used by one thread, which has others read for it."""

    def __init__(self, dataset: Dataset, threads: int, pace: Pace) -> None:
        self._paths = [str(dataset.path / shard_name(number)) for number in range(len(dataset.manifest.shards))]
        self._sizes = [shard.n_bytes for shard in dataset.manifest.shards]
        self._files, self._pace = Files(), pace
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headrace-read")

    def read(self, wanted: Sequence[Wanted], figures: Figures) -> list[npt.NDArray[np.uint8] | HeadraceError]:
        """Give each image as if its whole file were there, or what is wrong with it.

        What no region needs is left as it was in memory that nobody wrote to, which costs nothing.
        """
        # A thread takes several: to hand one over costs as much as to read one from the page cache.
        share = -(-len(wanted) // (_SHARES * self._threads)) or 1
        shares = [wanted[at : at + share] for at in range(0, len(wanted), share)]
        images = []
        read = (one for part in self._pool.map(self._read_share, shares) for one in part)
        for each, (image, amounts) in zip(wanted, read, strict=True):
            images.append(image)
            figures.add(FORMAT_NAMES[int(each.columns["format"][each.position])], **amounts)
        return images

    def _read_share(self, wanted: Sequence[Wanted]) -> list[_Read]:
        return [self._read(each) for each in wanted]

    def _read(self, wanted: Wanted) -> _Read:
        begun, cpu_begun = time.perf_counter(), time.thread_time()
        image: npt.NDArray[np.uint8] | HeadraceError
        try:
            image, n_bytes = self._image(wanted)
        except HeadraceError as error:
            image, n_bytes = error, 0
        seconds, cpu_seconds = time.perf_counter() - begun, time.thread_time() - cpu_begun
        return image, {"bytes_read": n_bytes, "read_seconds": seconds, "cpu_seconds": cpu_seconds}

    def _image(self, wanted: Wanted) -> tuple[npt.NDArray[np.uint8], int]:
        columns, at = wanted.columns, wanted.position
        shard, offset, length = (int(columns[part][at]) for part in ("shard", "offset", "length"))
        if shard >= len(self._paths):
            raise CorruptDataset(f"the index names shard {shard}, and there are {len(self._paths)}")
        if length == 0 or offset + length > self._sizes[shard]:
            raise CorruptDataset("the index names bytes beyond the end of the shard")
        path = self._paths[shard]
        image = np.empty(length, np.uint8)
        done = self._fill(path, offset, image, 0, length if length <= _WHOLE_FILE else _HEAD_GUESS)
        head_bytes = _claimed_head_bytes(image[:done])
        if done < head_bytes <= length:
            done += self._fill(path, offset, image, done, head_bytes)
        encoded: Any = image
        head = inspect(encoded)  # its sum tells whether any of it is wrong
        claimed = tuple(int(columns[part][at]) for part in ("height", "width", "channels"))
        if (head.height, head.width, head.channels) != claimed or head.dtype != DTYPE_NAMES[int(columns["dtype"][at])]:
            raise CorruptImage("the image does not have the size that the index claims")
        if done == length:
            return image, done
        n_read = done
        extents = [extent for region in wanted.regions for extent in _tiles(image, head_bytes, head, region)]
        for run in coalesce(extents, length):
            n_read += self._fill(path, offset, image, run.offset, run.offset + run.length)
        return image, n_read

    def _fill(self, path: str, offset: int, image: npt.NDArray[np.uint8], begin: int, end: int) -> int:
        self._pace.wait(end - begin)
        self._files.read_into(path, offset + begin, image[begin:end])
        return end - begin

    def close(self) -> None:
        """End the threads and close the files."""
        self._pool.shutdown(cancel_futures=True)
        self._files.close()


def _claimed_head_bytes(head: npt.NDArray[np.uint8]) -> int:
    """How long a head says that it is, index and sum included (spec/image.md §2); nothing of it has been checked."""
    if len(head) < _FIXED.size:
        return len(head)
    width, height, log_width, metadata_bytes, rank_bytes = _FIXED.unpack(head[: _FIXED.size].tobytes())
    tiles = -(-width >> log_width) * -(-height // _TILE_HEIGHT)
    return int(_FIXED.size + metadata_bytes + rank_bytes + 8 * tiles + 4)


def _tiles(image: npt.NDArray[np.uint8], head_bytes: int, head: Any, region: Region) -> list[Extent]:
    """Where the tiles of a region lie, a row of tiles each, in a file whose head has been checked."""
    top, left, height, width = region
    across, down = -(-head.width // head.tile_shape[1]), -(-head.height // _TILE_HEIGHT)
    index = head_bytes - 4 - 8 * across * down
    lengths = image[index:][: 4 * across * down].view("<u4")
    begins = head_bytes + np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    first, last = left // head.tile_shape[1], (left + width - 1) // head.tile_shape[1]
    rows = np.arange(top // _TILE_HEIGHT, (top + height - 1) // _TILE_HEIGHT + 1) * across
    return [
        Extent(int(begin), int(end - begin))
        for begin, end in zip(begins[rows + first], begins[rows + last + 1], strict=True)
    ]
