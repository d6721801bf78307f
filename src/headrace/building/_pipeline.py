# SPDX-License-Identifier: Apache-2.0
"""The coordinator: deals chunks to workers, gives each chunk its place in its shard, finishes shards in order of work.

    put ──► Task ──► worker encodes ──► Sized ──► place ──► Place ──► worker writes ──► Written ──► shard complete
                                                                                                        │
                                                     sum, sync, rename, part: a thread of its own  ◄────┘

A chunk's place is known as soon as all earlier chunks of its shard have their sizes, whoever encodes them. At most
`_DEPTH` chunks a worker are under way, so memory depends on the workers and not on the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from headrace.building._chunk import Failed, Place, Sized, Task, Written
from headrace.building._crew import Crew
from headrace.building._parts import Part
from headrace.building._site import Site
from headrace.errors import BuildError
from headrace.records.manifest import Shard

if TYPE_CHECKING:
    from headrace.sources import Item

# One being encoded, one that waits so that the worker never does, two that wait for their place.
_DEPTH = 4
_MAX_FINISHING = 2
_UNKNOWN = Shard(0, "", 0)


@dataclass(slots=True)
class Unit:
    """The items of one shard, as they are counted."""

    number: int
    items: int = 0
    source_bytes: int = 0
    _digest: Any = field(default_factory=lambda: blake2b(digest_size=16))
    _stamps: Any = field(default_factory=lambda: blake2b(digest_size=16))

    def count(self, key: str, n_bytes: int, state: str = "") -> None:
        """Count a sample. `state` is all else that the source's listing says of it."""
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
class _Chunk:
    number: int
    worker: int
    source_bytes: int
    size: int | None = None
    done: Written | None = None


@dataclass(slots=True)
class _Shard:
    unit: Unit
    path: str
    chunks: list[_Chunk] = field(default_factory=list)
    placed: int = 0
    n_bytes: int = 0
    closed: bool = False


class Pipeline:
    """Builds shards, one unit after the other. Not for several threads."""

    def __init__(self, site: Site, crew: Crew, on_written: Callable[[int, int, int], None] | None = None) -> None:
        self._site, self._crew, self._on_written = site, crew, on_written
        self._load = [0] * crew.size
        self._next_chunk = 0
        self._current: _Shard | None = None
        self._chunks: dict[int, tuple[_Shard, _Chunk]] = {}
        self._finisher = ThreadPoolExecutor(1)
        self._finishing: list[Future[Part]] = []

    def put(
        self,
        unit: Unit,
        source_bytes: int,
        *,
        items: Sequence[Item] = (),
        samples: Sequence[tuple[str, Mapping[str, Any] | Exception]] = (),
    ) -> None:
        """Have some samples encoded, as the next of the unit. Waits while all workers are busy."""
        if self._current is None:
            self._current = _Shard(unit, str(self._site.begin(unit.number)))
        shard = self._current
        while min(self._load) >= _DEPTH:
            self._take_answer()
        worker = self._load.index(min(self._load))
        chunk = _Chunk(self._next_chunk, worker, source_bytes)
        self._next_chunk += 1
        self._load[worker] += 1
        shard.chunks.append(chunk)
        self._chunks[chunk.number] = (shard, chunk)
        self._crew.send(worker, Task(chunk.number, unit.number, shard.path, items, samples))

    def end_unit(self) -> None:
        """Say that the current unit has no more samples."""
        if self._current is not None:
            self._current.closed = True
            self._finish_if_complete(self._current)
            self._current = None

    def drain(self) -> None:
        """Wait until every shard is finished."""
        while self._chunks:
            self._take_answer()
        while self._finishing:
            self._finishing.pop(0).result()

    def close(self) -> None:
        """Stop at once; shards that are not finished are lost."""
        self._crew.close()
        self._finisher.shutdown(cancel_futures=True)

    def _take_answer(self) -> None:
        _, answer = self._crew.receive()
        if isinstance(answer, Failed):
            raise BuildError(f"{answer.message}; {_remedy(answer)} and build again: finished shards are kept")
        shard, chunk = self._chunks[answer.number]
        if isinstance(answer, Sized):
            chunk.size = answer.n_bytes
            self._place(shard)
            return
        chunk.done = answer
        del self._chunks[answer.number]
        self._load[chunk.worker] -= 1
        if self._on_written is not None:
            self._on_written(answer.n_rows + len(answer.skipped), chunk.source_bytes, chunk.size or 0)
        self._finish_if_complete(shard)

    def _place(self, shard: _Shard) -> None:
        while shard.placed < len(shard.chunks):
            chunk = shard.chunks[shard.placed]
            if chunk.size is None:
                return
            self._crew.send(chunk.worker, Place(chunk.number, shard.n_bytes))
            shard.n_bytes += chunk.size
            shard.placed += 1

    def _finish_if_complete(self, shard: _Shard) -> None:
        done = [chunk.done for chunk in shard.chunks if chunk.done is not None]
        if not shard.closed or len(done) < len(shard.chunks):
            return
        while self._finishing and (self._finishing[0].done() or len(self._finishing) >= _MAX_FINISHING):
            self._finishing.pop(0).result()
        unit = shard.unit
        skipped = tuple(entry for written in done for entry in written.skipped)
        lossy = sum(written.lossy for written in done)
        part = Part(_UNKNOWN, unit.digest, unit.stamps, unit.items, unit.source_bytes, skipped, lossy)
        rows = [written.rows for written in done]
        self._finishing.append(self._finisher.submit(self._site.finish, unit.number, part, shard.n_bytes, rows))


def _remedy(failure: Failed) -> str:
    if failure.is_sample:
        return "correct or remove it, or use --on-error skip (on_error='skip') to omit such samples,"
    return "correct that"
