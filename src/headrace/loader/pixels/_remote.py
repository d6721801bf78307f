# SPDX-License-Identifier: Apache-2.0
"""The pixels of a dataset in an object store: the images of a batch are fetched, then the engine decodes them.

Each batch goes through these states:

    waiting     for a slot (a file in memory) that holds its images
    fetching    its images are requested, many at a time
    ready       every image has arrived and has the checksum of the index, or has failed for good
    decoding    the engine reads the slot; batches enter this state in the order of submission
    done        the slot is free again

Requests run ahead of the engine by more batches than it has in progress, so that their latency does not matter. All
changes of state happen in the thread of the event loop, so there is no lock.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from headrace.errors import CorruptDataset, HeadraceError
from headrace.loader._options import Options
from headrace.loader.pixels._engine import Columns, EngineSource, PixelBatch, Rows, Stack
from headrace.records import Dataset
from headrace.records.checksum import crc32c
from headrace.records.manifest import shard_name
from headrace.storage import Fetcher, ObjectRange, RangePart, Slots, StoreCounts, call_in_loop, pack, run_in_loop
from headrace.transforms import Compiled

MAX_SLOTS = 64
CHECKSUM_TRIES = 3
BYTES_AHEAD = 256 << 20
"""Bytes that may be requested ahead of the engine: 0.25 s at 1 GB/s, more than the latency of a store."""

Failure: TypeAlias = tuple[int, int, int, str, str]


@dataclass(slots=True, eq=False)
class _Work:
    """What the event loop knows of one batch."""

    rows: Rows
    epoch: int
    columns: list[Columns]  # of each field
    answer: queue.SimpleQueue[PixelBatch | BaseException] = field(default_factory=queue.SimpleQueue)
    failures: dict[tuple[int, int], HeadraceError] = field(default_factory=dict)  # by position and field
    slot: int | None = None
    task: asyncio.Task[None] | None = None
    is_ready: bool = False
    is_decoding: bool = False
    is_over: bool = False  # decoded, or not wanted any more


class RemoteBatch:
    """A batch in progress. Dropping it cancels its requests and its decoding."""

    def __init__(self, source: RemoteSource, work: _Work) -> None:
        self._source, self._work = source, work
        self._decoding: PixelBatch | None = None

    def wait(self, timeout: float) -> bool:
        """Wait for the images, then for the engine; True when all samples are done or have failed."""
        deadline = time.monotonic() + timeout
        if self._decoding is None:
            try:
                answer = self._work.answer.get(timeout=timeout)
            except queue.Empty:
                return False
            if isinstance(answer, BaseException):
                raise answer
            self._decoding = answer
        if not self._decoding.wait(max(0.0, deadline - time.monotonic())):
            return False
        self._source.end(self._work)
        return True

    def take(self) -> list[Stack]:
        return self._batch.take()

    def failures(self) -> list[Failure]:
        """As the engine reports them, but with the store's error for images that could not be fetched."""
        found = []
        for position, number, _, kind, message in self._batch.failures():
            error = self._work.failures.get((position, number))
            reason = (kind, message) if error is None else (type(error).__name__, str(error))
            found.append((position, number, self._source.rendition_of(number), *reason))
        return found

    @property
    def _batch(self) -> PixelBatch:
        if self._decoding is None:
            raise RuntimeError("wait() must have returned True")
        return self._decoding

    def __del__(self) -> None:
        self._source.end(self._work)


class RemoteSource:
    """Makes batches of pixels from a store."""

    def __init__(
        self, dataset: Dataset, names: Sequence[str], compiled: Compiled, *, seed: int, options: Options
    ) -> None:
        objects = dataset.objects
        if objects is None:
            raise ValueError(f"{dataset.location} must be a URL: a local dataset has no object store")
        self._gather = dataset.gather
        self._shards = np.array([shard.n_bytes for shard in dataset.manifest.shards], np.uint64)
        # All renditions of an image have the same pixels. Storage is the slow part here, so the smallest is fetched.
        self._renditions = {name: _smallest_rendition(dataset, name) for name in names}
        self.ahead = _batches_ahead(dataset, self._renditions, options)
        """Batches that may be in progress."""
        # One more slot, for a batch that replaces damaged samples while the others are in progress.
        self._slots = Slots(self.ahead + 1)
        self._engine = EngineSource(dataset, names, compiled, seed=seed, options=options, shards=self._slots.files)
        self.max_batch_bytes = self._engine.max_batch_bytes
        self._counts = StoreCounts()
        self._fetcher = Fetcher(objects, self._counts)
        self._order: deque[_Work] = deque()  # batches that are not decoding yet
        self._decoding = 0
        self._max_decoding = options.batches_ahead

    def submit(self, rows: Rows, epoch: int) -> PixelBatch:
        """Submit a batch. Returns at once."""
        columns = [self._gather.pixel_columns(name, chosen, rows) for name, chosen in self._renditions.items()]
        work = _Work(rows, epoch, columns)
        run_in_loop(self._add(work))
        return RemoteBatch(self, work)

    def rendition_of(self, number: int) -> int:
        """Return which rendition of a field is fetched."""
        return [*self._renditions.values()][number]

    def end(self, work: _Work) -> None:
        """Free what a batch uses. It is decoded, or not wanted any more. Finalizers may call it."""
        call_in_loop(self._end, work)

    # In the thread of the event loop.

    async def _add(self, work: _Work) -> None:
        self._order.append(work)
        self._advance()

    def _advance(self) -> None:
        """Give free slots to waiting batches, and ready batches to the engine, both in the order of submission."""
        for work in self._order:
            if work.slot is None and not work.is_over:
                work.slot = self._slots.take()
                if work.slot is None:
                    break
                work.task = asyncio.get_running_loop().create_task(self._fetch(work))
        while self._order and self._decoding < self._max_decoding:
            work = self._order[0]
            if not (work.is_ready or work.is_over):
                break
            self._order.popleft()
            if not work.is_over:
                self._decode(work)

    def _end(self, work: _Work) -> None:
        if work.is_over:
            return
        work.is_over = True
        if work.is_decoding:
            self._decoding -= 1
        if work.task is not None and not work.task.done():
            work.task.cancel()  # `_fetch` frees the slot
        elif work.slot is not None:
            self._slots.release(work.slot)
        self._advance()

    def _decode(self, work: _Work) -> None:
        work.is_decoding = True
        self._decoding += 1
        try:
            work.answer.put(self._engine.submit_columns([[each] for each in work.columns], work.rows, work.epoch))
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            work.answer.put(error)

    async def _fetch(self, work: _Work) -> None:
        try:
            await self._fetch_all(work)
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            work.answer.put(error)
            work.is_over = True
        work.is_ready = True
        if work.is_over and work.slot is not None:
            self._slots.release(work.slot)
        self._advance()

    async def _fetch_all(self, work: _Work) -> None:
        """Fetch the images of all fields into the slot, and change the columns to their new places."""
        slot, pieces, places = cast("int", work.slot), [], []
        lengths = []
        for columns in work.columns:
            valid = self._claims_are_valid(columns)
            columns["length"] = np.where(valid, columns["length"], 0)
            lengths.append(columns["length"].astype(np.int64))
        starts = np.split(pack(np.concatenate(lengths)), len(work.columns))
        for number, (columns, new) in enumerate(zip(work.columns, starts, strict=True)):
            for at in range(len(work.rows)):
                shard, start, n_bytes = (int(columns[name][at]) for name in ("shard", "offset", "length"))
                if n_bytes == 0:
                    work.failures[at, number] = CorruptDataset("the index names bytes beyond the end of the shard")
                    continue
                pieces.append(ObjectRange(shard_name(shard), start, n_bytes, int(new[at])))
                places.append((at, number, int(columns["checksum"][at])))
        damaged = await self._fetch_pieces(slot, pieces, [checksum for _, _, checksum in places])
        for index, error in damaged.items():
            at, number, _ = places[index]
            work.failures[at, number] = error
        for columns, new in zip(work.columns, starts, strict=True):
            columns["offset"] = new.astype(columns["offset"].dtype)
            columns["shard"] = np.full_like(columns["shard"], slot)

    def _claims_are_valid(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Return which images lie within their shards, as the index claims. It is not trusted."""
        known = columns["shard"] < len(self._shards)
        ends = self._shards[np.where(known, columns["shard"], 0)] if len(self._shards) else np.zeros(1, np.uint64)
        valid: npt.NDArray[np.bool_] = known & (columns["offset"] <= ends)
        return valid & (columns["length"] <= ends - np.where(valid, columns["offset"], ends))

    async def _fetch_pieces(
        self, slot: int, pieces: list[ObjectRange], checksums: list[int]
    ) -> dict[int, HeadraceError]:
        """Fetch pieces and check them. A piece with the wrong checksum is fetched again."""
        errors: dict[int, HeadraceError] = {}
        left = list(range(len(pieces)))
        for _ in range(CHECKSUM_TRIES):
            found: dict[int, int] = {}

            def write(
                part: RangePart, content: memoryview, chosen: list[int] = left, found: dict[int, int] = found
            ) -> None:
                self._slots.write(slot, part.to, content)
                if part.n_bytes == pieces[chosen[part.piece]].n_bytes:  # else it is read back, when all parts are there
                    found[part.piece] = crc32c(content)

            failed = await self._fetcher.fetch([pieces[index] for index in left], write)
            again = []
            for number, index in enumerate(left):
                if number in failed:
                    errors[index] = failed[number]
                elif (found.get(number) or self._sum(slot, pieces[index])) != checksums[index]:
                    again.append(index)
            left = again
            if not left:
                break
        for index in left:
            errors[index] = CorruptDataset(
                "the checksum of the bytes in the store does not match the index: the object is damaged, or the "
                "dataset has been replaced since it was opened"
            )
        return errors

    def _sum(self, slot: int, piece: ObjectRange) -> int:
        return crc32c(self._slots.read(slot, piece.to, piece.n_bytes))

    # For the loader.

    def stats(self) -> dict[str, Any]:
        return {**self._engine.stats(), "store": replace(self._counts)}

    def set_storage_rate(self, rate: float | None) -> None:
        self._engine.set_storage_rate(rate)

    def close(self) -> None:
        self._engine.close()


def _smallest_rendition(dataset: Dataset, name: str) -> int:
    """Return the rendition of a field that has the fewest bytes, judged by some rows."""
    count = next(each.renditions for each in dataset.manifest.fields if each.name == name)
    sizes = [_mean_bytes(dataset, name, number) for number in range(count)]
    return int(np.argmin(sizes))


def _mean_bytes(dataset: Dataset, name: str, rendition: int) -> float:
    n = len(dataset)
    rows = dataset.gather.rows(np.arange(0, n, max(1, n // 256), dtype=np.int64))
    return float(dataset.gather.pixel_columns(name, rendition, rows)["length"].mean()) if len(rows) else 0.0


def _batches_ahead(dataset: Dataset, renditions: dict[str, int], options: Options) -> int:
    """Return how many batches are in progress: enough to hide the latency of a store, within bounds of memory."""
    per_sample = sum(_mean_bytes(dataset, name, number) for name, number in renditions.items())
    wanted = int(BYTES_AHEAD / max(1.0, per_sample * options.batch_size))
    return max(options.batches_ahead, min(MAX_SLOTS, wanted))
