# SPDX-License-Identifier: Apache-2.0
"""The coordinator: gives chunks to workers, gives each chunk its offset in its shard, and finishes shards.

    put ─► EncodeChunk ─► worker encodes ─► ChunkEncoded ─► offset ─► WriteChunk ─► worker writes ─► ChunkWritten
                                                                                                          │
                               checksum, sync, rename, part: in a separate thread  ◄── shard complete ◄───┘

A chunk's offset is known as soon as all earlier chunks of its shard are encoded. At most `_MAX_CHUNKS_PER_WORKER`
chunks per worker are in progress, so memory depends on the number of workers and not on the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from headrace.building._chunk import ChunkEncoded, ChunkFailed, ChunkWritten, EncodeChunk, Pending, WriteChunk
from headrace.building._destination import Destination
from headrace.building._parts import Part
from headrace.building._workers import Workers
from headrace.errors import BuildError
from headrace.records.manifest import Shard

if TYPE_CHECKING:
    from headrace.sources import Item

# A chunk is large enough that messages cost little, and small enough that workers get equal shares.
_CHUNK_BYTES = 1 << 20
_CHUNK_SAMPLES = 128
# One that is being encoded, one queued so that the worker never waits, two that wait for their offsets.
_MAX_CHUNKS_PER_WORKER = 4
_MAX_FINISHING = 2
_NOT_YET_KNOWN = Shard(0, "", 0)


@dataclass(slots=True)
class Unit:
    """The items of one shard (spec/dataset.md §7): their number, their bytes, and digests of what the source lists."""

    number: int
    items: int = 0
    source_bytes: int = 0
    _digest: Any = field(default_factory=lambda: blake2b(digest_size=16))
    _stamps: Any = field(default_factory=lambda: blake2b(digest_size=16))

    def count(self, key: str, n_bytes: int, state: str = "") -> None:
        """Add a sample; `state` is everything else that the source lists about it."""
        name = key.encode(errors="surrogatepass")
        self._digest.update(len(name).to_bytes(8, "little") + name + n_bytes.to_bytes(8, "little"))
        self._stamps.update(state.encode(errors="surrogatepass") + b"\n")
        self.items += 1
        self.source_bytes += n_bytes

    @property
    def digest(self) -> str:
        return str(self._digest.hexdigest())

    @property
    def stamps(self) -> str:
        return str(self._stamps.hexdigest())


@dataclass(slots=True)
class _ChunkState:
    number: int
    worker: int
    source_bytes: int
    size: int | None = None
    written: ChunkWritten | None = None


@dataclass(slots=True)
class _ShardState:
    unit: Unit
    path: str
    chunks: list[_ChunkState] = field(default_factory=list)
    placed: int = 0
    """Number of chunks whose offset is known."""
    n_bytes: int = 0
    closed: bool = False


class EncodePipeline:
    """Builds shards, one unit after the other. Not thread-safe."""

    def __init__(
        self, dest: Destination, workers: Workers, on_written: Callable[[int, int, int], None] | None = None
    ) -> None:
        self._dest, self._workers, self._on_written = dest, workers, on_written
        self._in_progress = [0] * workers.size
        self._next_chunk = 0
        self._current: _ShardState | None = None
        self._samples: list[tuple[str, Pending]] = []  # of the next chunk
        self._samples_bytes = self._source_bytes = 0
        self._chunks: dict[int, tuple[_ShardState, _ChunkState]] = {}
        self._finisher = ThreadPoolExecutor(1)
        self._finishing: list[Future[Part]] = []

    def add(self, unit: Unit, item: Item, sample: Mapping[str, Any] | Exception | None = None) -> None:
        """Add an item to the unit, to be loaded by a worker unless `sample` is given. Waits while workers are busy."""
        if self._current is None:
            self._current = _ShardState(unit, str(self._dest.begin(unit.number)))
        self._samples.append((item.key, item if sample is None else sample))
        self._samples_bytes += item.n_bytes if sample is None else _sample_bytes(sample)
        self._source_bytes += item.n_bytes
        if self._samples_bytes >= _CHUNK_BYTES or len(self._samples) >= _CHUNK_SAMPLES:
            self._send_chunk(self._current)

    def _send_chunk(self, shard: _ShardState) -> None:
        while min(self._in_progress) >= _MAX_CHUNKS_PER_WORKER:
            self._take_reply()
        worker = self._in_progress.index(min(self._in_progress))
        chunk = _ChunkState(self._next_chunk, worker, self._source_bytes)
        self._next_chunk += 1
        self._in_progress[worker] += 1
        shard.chunks.append(chunk)
        self._chunks[chunk.number] = (shard, chunk)
        self._workers.send(worker, EncodeChunk(chunk.number, shard.unit.number, shard.path, self._samples))
        self._samples, self._samples_bytes, self._source_bytes = [], 0, 0

    def end_unit(self) -> None:
        """End the current unit: it has no more samples."""
        if self._current is not None:
            if self._samples:
                self._send_chunk(self._current)
            self._current.closed = True
            self._finish_if_complete(self._current)
            self._current = None

    def drain(self) -> None:
        """Wait until every shard is finished."""
        while self._chunks:
            self._take_reply()
        while self._finishing:
            self._finishing.pop(0).result()

    def close(self) -> None:
        """Stop at once; unfinished shards are lost."""
        self._workers.close()
        self._finisher.shutdown(cancel_futures=True)

    def _take_reply(self) -> None:
        reply = self._workers.receive()
        if isinstance(reply, ChunkFailed):
            remedy = "correct that"
            if reply.is_sample:
                remedy = "correct or remove it, or use --on-error skip (on_error='skip') to omit such samples,"
            raise BuildError(f"{reply.message}; {remedy} and build again: finished shards are kept")
        shard, chunk = self._chunks[reply.number]
        if isinstance(reply, ChunkEncoded):
            chunk.size = reply.n_bytes
            self._send_offsets(shard)
            return
        chunk.written = reply
        del self._chunks[reply.number]
        self._in_progress[chunk.worker] -= 1
        if self._on_written is not None:
            self._on_written(reply.n_rows + len(reply.skipped), chunk.source_bytes, chunk.size or 0)
        self._finish_if_complete(shard)

    def _send_offsets(self, shard: _ShardState) -> None:
        while shard.placed < len(shard.chunks):
            chunk = shard.chunks[shard.placed]
            if chunk.size is None:
                return
            self._workers.send(chunk.worker, WriteChunk(chunk.number, shard.n_bytes))
            shard.n_bytes += chunk.size
            shard.placed += 1

    def _finish_if_complete(self, shard: _ShardState) -> None:
        written = [chunk.written for chunk in shard.chunks if chunk.written is not None]
        if not shard.closed or len(written) < len(shard.chunks):
            return
        while self._finishing and (self._finishing[0].done() or len(self._finishing) >= _MAX_FINISHING):
            self._finishing.pop(0).result()
        unit = shard.unit
        skipped = tuple(entry for each in written for entry in each.skipped)
        lossy = sum(each.lossy for each in written)
        part = Part(_NOT_YET_KNOWN, unit.digest, unit.stamps, unit.items, unit.source_bytes, skipped, lossy)
        rows = [each.rows for each in written]
        self._finishing.append(self._finisher.submit(self._dest.finish, unit.number, part, shard.n_bytes, rows))


def _sample_bytes(sample: Mapping[str, Any] | Exception) -> int:
    """Estimate the memory of a loaded sample's images."""
    if isinstance(sample, Exception):
        return 0
    return sum(getattr(value, "nbytes", 0) or len(getattr(value, "data", b"")) for value in sample.values())
