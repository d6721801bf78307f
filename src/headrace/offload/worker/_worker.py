# SPDX-License-Identifier: Apache-2.0
"""The offload worker's main loop: finds ranks, makes their batches in turn, publishes them, writes heartbeats.

Ranks are independent. An error ends the service of the rank that it came from (`_contain`), and a batch that takes long
delays only batches of its own recipe.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.offload._cost import CostMeter
from headrace.offload.exchange._batch_file import Arrays
from headrace.offload.exchange._liveness import BEAT_SECONDS
from headrace.offload.exchange._names import BatchName, new_token
from headrace.offload.worker._rank import PendingBatch, RankGone, ServedRank, prepared_text
from headrace.offload.worker._search import Makers, RankSearch

# One round of the loop costs 0.2 ms, which is noticeable on an eighth of a core: rounds are rare while a batch is made.
_WAIT_SECONDS = 0.1
# With several recipes, a batch of one may be done while the loop waits for a batch of another.
_WAIT_SECONDS_OF_MANY = 0.01
_PAUSE_SECONDS = 0.02
_IDLE_SECONDS = 0.05
_SAMPLES_PER_THREAD = 2

_log = logging.getLogger("headrace.offload")


class WorkerProgress(NamedTuple):
    """What an offload worker has done and what is wrong, to show to the user."""

    ranks: int
    batches: int  # prepared so far, for all ranks
    written_bytes: int
    seconds_per_batch: float | None
    held_bytes: int  # of batches that were not read yet
    cpu_seconds: float
    trouble: str


class BatchInProgress(NamedTuple):
    """A batch that was submitted, and the rank that it is for."""

    rank: ServedRank
    pending: PendingBatch


class OffloadWorker:
    """Prepares batches for all ranks in an exchange folder, in turn.

    Args:
        dataset: The dataset; it must have the fingerprint of the host's.
        exchange: The folder that both sides can write to. It may be created later, and may disappear.
        threads: How many samples are loaded at a time.
        ahead_bytes: Maximum bytes of unread batches in the folder, for all ranks together. Each rank may always have
            one batch.
        ranks: Serve only these ranks; None serves all.
        report: Called with a line of text when a rank is claimed, finished or refused; None logs it (INFO).

    """

    def __init__(
        self,
        dataset: Path,
        exchange: Path,
        *,
        threads: int = 1,
        ahead_bytes: int = 2 * 10**9,
        ranks: Collection[int] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.name = new_token()
        self._threads, self._ahead_bytes = threads, ahead_bytes
        self._report = report or _log.info
        self._makers = Makers(dataset, threads)  # opens the dataset, so that errors are raised here
        self._search = RankSearch(exchange, self.name, self._makers, ranks, self._report)
        self._meter = CostMeter()
        self._cost = self._meter.cost()
        self._ranks: tuple[ServedRank, ...] = ()  # a tuple, because other threads read it
        self._turn = 0
        self._batches: list[BatchInProgress] = []
        self._lost: set[ServedRank] = set()
        self._written_bytes = self._prepared = 0
        self._has_served = self._stopped = False
        self._writing = threading.Lock()  # two threads write heartbeats

    def stop(self) -> None:
        """Let `run` end soon. Takes no lock, so a signal handler may call it."""
        self._stopped = True

    def run(self, *, once: bool = False, show: Callable[[OffloadWorker], None] | None = None) -> None:
        """Serve until `stop` is called, or with `once` until all ranks that were served have ended.

        `show` is called after each round of the loop.
        """
        with self._heartbeats():
            try:
                while not self._stopped and not (once and self._has_served and not self._ranks):
                    self._update_ranks()
                    if not self._work():
                        time.sleep(_PAUSE_SECONDS if self._ranks else _IDLE_SECONDS)
                    if show is not None:
                        show(self)
            finally:
                self._end()

    def progress(self) -> WorkerProgress:
        """Return what was done so far. Any thread may call this."""
        ranks = self._ranks
        times = [rank.seconds_per_batch for rank in ranks if rank.seconds_per_batch is not None]
        return WorkerProgress(
            ranks=len(ranks),
            batches=self._prepared,
            written_bytes=self._written_bytes,
            seconds_per_batch=sum(times) / len(times) / max(1, len(ranks)) if times else None,
            held_bytes=sum(rank.files.held_bytes for rank in ranks),
            cpu_seconds=self._cost.cpu_seconds,
            trouble=next((rank.trouble for rank in ranks if rank.trouble), self._search.trouble),
        )

    # Ranks.

    def _update_ranks(self) -> None:
        due = time.monotonic() >= self._search.next_at
        for found in self._search.find({rank.cells.folder for rank in self._ranks}) if due else ():
            self._ranks += (found,)
            self._has_served = True
            self._report(f"serving {found.title}: batches of {found.maker.batch_size} samples")
            if self._stopped:
                return
        ahead_bytes = self._ahead_bytes // max(1, len(self._ranks))
        for rank in self._ranks:
            with self._contain(rank):
                if rank not in self._lost:
                    rank.update(ahead_bytes)
                    if rank.must_announce:
                        self._write_heartbeat(rank)
            if rank in self._lost:
                self._drop(rank)

    @contextlib.contextmanager
    def _contain(self, rank: ServedRank) -> Iterator[None]:
        """Handle an error of one rank, so that the others are served."""
        try:
            try:
                yield
            except OSError as error:
                rank.fail(error)
        except RankGone:
            self._lost.add(rank)
        except Exception as error:  # noqa: BLE001 - a forged rank can fail in any way
            self._lost.add(rank)
            with contextlib.suppress(RankGone, OSError, ValueError):
                self._search.refuse(rank.cells, f"{type(error).__name__}: {error}")

    def _drop(self, rank: ServedRank) -> None:
        self._ranks = tuple(each for each in self._ranks if each is not rank)
        self._lost.discard(rank)
        self._batches = [batch for batch in self._batches if batch.rank is not rank]
        self._makers.keep_only({each.maker for each in self._ranks})
        self._report(f"finished {rank.title}: {prepared_text(rank.batches, rank.written_bytes)}")

    # Batches.

    def _work(self) -> bool:
        """Submit batches and publish the first that is done; False if there is nothing to do."""
        # Forget batches that the host has made itself meanwhile.
        self._batches = [batch for batch in self._batches if batch.rank.wants(batch.pending.name)]
        self._submit()
        if not self._batches:
            return False
        done = self._wait()
        if done is not None:
            self._submit(1)  # so that the threads have work while this batch is written
            self._batches.remove(done)
            with self._contain(done.rank):
                try:
                    batch, declined = done.pending.take(), None
                except HeadraceError as error:
                    batch, declined = {}, str(error)
                self._publish(done.rank, done.pending.name, batch, declined)
        return True

    def _wait(self) -> BatchInProgress | None:
        """Wait a little for the oldest batch of each recipe; return one that is done."""
        oldest: dict[int, BatchInProgress] = {}
        for batch in self._batches:
            oldest.setdefault(id(batch.rank.maker), batch)
        seconds = _WAIT_SECONDS if len(oldest) == 1 else _WAIT_SECONDS_OF_MANY
        for batch in oldest.values():
            with self._contain(batch.rank):
                if batch.pending.wait(seconds):
                    return batch
            seconds = 0.0
        return None

    def _submit(self, more: int = 0) -> None:
        """Submit batches of each rank in turn, until each recipe has enough in progress, plus `more`."""
        idle = 0
        while idle < len(self._ranks) and not self._stopped:
            self._turn = (self._turn + 1) % len(self._ranks)
            rank, submitted = self._ranks[self._turn], False
            with self._contain(rank):
                submitted = self._submit_next(rank, more)
            idle = 0 if submitted else idle + 1

    def _submit_next(self, rank: ServedRank, more: int) -> bool:
        """Submit the next batch of a rank; False if it needs none, or enough are in progress."""
        in_progress = sum(batch.rank.maker is rank.maker for batch in self._batches)
        # Enough that each thread finds a sample waiting, however small the batches are.
        enough = max(1, -(-_SAMPLES_PER_THREAD * self._threads // rank.maker.batch_size))
        if rank in self._lost or in_progress >= enough + more:
            return False
        name = rank.next_name([batch.pending.name for batch in self._batches if batch.rank is rank])
        if name is None:
            return False
        try:
            self._batches.append(BatchInProgress(rank, rank.maker.begin(name)))
        except (HeadraceError, IndexError, ValueError) as error:
            self._publish(rank, name, {}, str(error))
            return False
        return True

    def _publish(self, rank: ServedRank, name: BatchName, batch: Arrays, declined: str | None = None) -> None:
        with self._contain(rank):
            n_bytes = rank.publish(name, batch, declined)
            self._written_bytes += n_bytes
            self._prepared += n_bytes > 0

    # Heartbeats.

    def _write_heartbeat(self, rank: ServedRank) -> None:
        with self._writing, contextlib.suppress(OSError):
            rank.cells.write(
                ranks=len(self._ranks),
                threads=self._threads,
                written_bytes=self._written_bytes,
                **self._cost._asdict(),
                **rank.figures(),
            )

    @contextlib.contextmanager
    def _heartbeats(self) -> Iterator[None]:
        """Write heartbeats in a thread, however long a batch takes."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(0.8 * BEAT_SECONDS):
                self._cost = self._meter.cost()  # takes 0.5 ms, too long to do it for each batch
                for rank in self._ranks:
                    with self._contain(rank):
                        self._write_heartbeat(rank)

        thread = threading.Thread(target=run, name="headrace-offload-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _end(self) -> None:
        """Write that this worker has ended. Published batches stay: the host can read them, and removes them."""
        self._batches.clear()
        self._cost = self._meter.cost()
        for rank in self._ranks:
            rank.state = "ended"
            with self._contain(rank):
                self._write_heartbeat(rank)
            self._report(f"left {rank.title}: {prepared_text(rank.batches, rank.written_bytes)}")
        self._makers.keep_only(())
