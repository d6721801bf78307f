# SPDX-License-Identifier: Apache-2.0
"""The offload worker's loop: finds ranks to serve, makes their batches in turn, publishes them, says that it lives.

Ranks are strangers to one another. Whatever one of them has in its folder, the others are served: an error ends the
service of the rank that it came from (`_contained`), and a batch that takes long holds up its own recipe only.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headrace.errors import HeadraceError
from headrace.offload._accounting import Account
from headrace.offload.exchange._folder import sweep_rank
from headrace.offload.exchange._machine import new_token
from headrace.offload.exchange._names import BEAT_SECONDS, BatchName
from headrace.offload.exchange._worker import Gone
from headrace.offload.worker._batches import PendingBatch
from headrace.offload.worker._makers import Makers
from headrace.offload.worker._search import Search
from headrace.offload.worker._served import Served

# Each look costs a fifth of a millisecond, which an eighth of a core feels: while a batch is made there are few.
_MAKING_SECONDS = 0.1
_WAIT_SECONDS = 0.02
_IDLE_SECONDS = 0.05
_SAMPLES_A_THREAD = 2
# A batch of one recipe may be done while that of another is waited for.
_MIXED_SECONDS = 0.01

_log = logging.getLogger("headrace.offload")


class WorkerProgress(NamedTuple):
    """How an offload worker is doing, for people to look at."""

    ranks: int
    batches: int
    """Given to all ranks so far."""
    given_bytes: int
    seconds_a_batch: float | None
    held_bytes: int
    cpu_seconds: float
    trouble: str


class Flight(NamedTuple):
    """A batch that is being made."""

    served: Served
    name: BatchName
    making: PendingBatch


class OffloadWorker:
    """Prepares batches for all ranks in an exchange folder, one batch of each in turn.

    Args:
        dataset: The dataset, as the host has it; its fingerprint is compared.
        exchange: The folder that both sides see. It may appear later, and vanish.
        threads: Samples that are worked on at a time.
        ahead_bytes: How many bytes of unread batches may lie in the folder, of all ranks together; each has one batch
            at least.
        ranks: Serve these alone; None is all.
        watts: What a busy core takes, for the energy account.
        report: Is called with a line of text when a rank is taken, has ended, or is refused; None logs it (INFO).

    """

    def __init__(
        self,
        dataset: Path,
        exchange: Path,
        *,
        threads: int = 1,
        ahead_bytes: int = 2 * 10**9,
        ranks: Collection[int] | None = None,
        watts: float | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.name = new_token()
        self._exchange, self._threads = exchange, threads
        self._ahead_bytes = ahead_bytes
        self._report = report or _log.info
        self._makers = Makers(dataset, threads)  # opens the dataset: what is wrong with it is better said now
        self._search = Search(exchange, self.name, self._makers, ranks, self._report)
        self._account = Account(watts)
        self._cost = self._account.cost()
        self._served: deque[Served] = deque()  # whose turn is next comes first
        self._members: tuple[Served, ...] = ()  # the same, for other threads to look at
        self._flights: deque[Flight] = deque()
        self._lost: set[Served] = set()
        self._past_bytes = self._past_batches = 0
        self._has_served = self._stopped = False

    def stop(self) -> None:
        """Let `run` end soon. Takes no lock, so a signal's handler may call it."""
        self._stopped = True

    def run(self, *, once: bool = False, show: Callable[[OffloadWorker], None] | None = None) -> None:
        """Serve until `stop` is called, or with `once` until all that was served has ended; `show` is called often."""
        with self._beating():
            try:
                while not self._stopped and not (once and self._has_served and not self._served):
                    self._look_around()
                    if not self._work():
                        time.sleep(_WAIT_SECONDS if self._served else _IDLE_SECONDS)
                    if show is not None:
                        show(self)
            finally:
                self._leave()

    def progress(self) -> WorkerProgress:
        """Tell people how it goes."""
        served = self._members
        times = [one.seconds_a_batch for one in served if one.seconds_a_batch is not None]
        return WorkerProgress(
            ranks=len(served),
            batches=self._past_batches + sum(one.batches for one in served),
            given_bytes=self._past_bytes + sum(one.written_bytes for one in served),
            seconds_a_batch=sum(times) / len(times) / max(1, len(served)) if times else None,
            held_bytes=sum(one.held_bytes for one in served),
            cpu_seconds=self._cost.cpu_seconds,
            trouble=next((one.trouble for one in served if one.trouble), self._search.trouble),
        )

    # Whom to serve.

    def _look_around(self) -> None:
        for found in self._search.look({served.near.folder for served in self._served}):
            self._served.append(found)
            self._members = tuple(self._served)
            self._has_served = True
            self._report(f"serving {found.title}: batches of {found.maker.batch_size} samples")
            if self._stopped:
                return
        share = self._ahead_bytes // max(1, len(self._served))
        for served in self._members:
            with self._contained(served):
                if served not in self._lost:
                    self._refresh(served, share)
            if served in self._lost:
                self._drop(served)

    @contextlib.contextmanager
    def _contained(self, served: Served) -> Iterator[None]:
        """Keep what goes wrong with one rank from the others."""
        try:
            try:
                yield
            except OSError as error:
                served.fail(error)
        except Gone:
            self._lost.add(served)
        except Exception as error:  # noqa: BLE001 - a forged rank can fail in any way
            self._lost.add(served)
            with contextlib.suppress(Gone, OSError, ValueError):
                self._search.refuse(served.near, f"{type(error).__name__}: {error}")

    def _refresh(self, served: Served, ahead_bytes: int) -> None:
        served.refresh(ahead_bytes)
        if served.is_abandoned():
            self._lost.add(served)
            sweep_rank(served.near.folder)

    def _drop(self, served: Served) -> None:
        self._served.remove(served)
        self._members = tuple(self._served)
        self._lost.discard(served)
        self._past_batches += served.batches
        self._past_bytes += served.written_bytes
        self._flights = deque(flight for flight in self._flights if flight.served is not served)
        self._makers.give_back(served.near)
        self._report(f"finished {served.title}: {served.gave}")

    # Batches.

    def _work(self) -> bool:
        """Bring the oldest batch under way a little further, and others with it; False if there is none."""
        # What the host has made itself meanwhile need not be finished.
        self._flights = deque(flight for flight in self._flights if flight.served.wants(flight.name))
        self._begin()
        if not self._flights:
            return False
        done = self._done()
        if done is not None:
            self._begin(1)  # threads go on while this one is written
            self._flights.remove(done)
            self._finish(done)
        return True

    def _done(self) -> Flight | None:
        """Wait a little for the oldest batch of any recipe."""
        oldest: dict[int, Flight] = {}
        for flight in self._flights:
            oldest.setdefault(id(flight.served.maker), flight)
        first = True
        for flight in oldest.values():
            seconds = (_MAKING_SECONDS if len(oldest) == 1 else _MIXED_SECONDS) if first else 0.0
            first = False
            with self._contained(flight.served):
                if flight.making.wait(seconds):
                    return flight
        return None

    def _begin(self, more: int = 0) -> None:
        """Submit batches, of each rank in turn, until each recipe has enough under way, and `more`."""
        idle = 0
        while idle < len(self._served) and not self._stopped:
            served = self._served[0]
            self._served.rotate(-1)
            begun = False
            with self._contained(served):
                begun = self._begin_next(served, more)
            idle = 0 if begun else idle + 1

    def _begin_next(self, served: Served, more: int) -> bool:
        """Submit the next batch of a rank; False if it has none, or enough is under way."""
        under_way = sum(flight.served.maker is served.maker for flight in self._flights)
        if served in self._lost or under_way >= self._most_flights(served) + more:
            return False
        name = served.next_name([flight.name for flight in self._flights if flight.served is served])
        if name is None:
            return False
        try:
            self._flights.append(Flight(served, name, served.maker.begin(name)))
        except (HeadraceError, IndexError, ValueError) as error:
            self._publish(served, name, {}, str(error))
            return False
        return True

    def _most_flights(self, served: Served) -> int:
        """Enough for each thread to find samples waiting, however small the batches."""
        return max(1, -(-_SAMPLES_A_THREAD * self._threads // served.maker.batch_size))

    def _finish(self, flight: Flight) -> None:
        with self._contained(flight.served):
            try:
                batch = flight.making.take()
            except HeadraceError as error:
                self._publish(flight.served, flight.name, {}, str(error))
            else:
                self._publish(flight.served, flight.name, batch)

    def _publish(self, served: Served, name: BatchName, batch: Any, declined: str | None = None) -> None:
        with self._contained(served):
            served.publish(name, batch, declined)
        if served not in self._lost:
            self._say(served)

    # Signs of life.

    def _say(self, served: Served) -> None:
        beat = replace(
            served.heartbeat(),
            ranks=len(self._members),
            threads=self._threads,
            written_bytes=self._past_bytes + sum(one.written_bytes for one in self._members),
            **self._account.brought_up(self._cost)._asdict(),
        )
        with contextlib.suppress(OSError):
            served.near.say(beat)

    @contextlib.contextmanager
    def _beating(self) -> Iterator[None]:
        """Say often that this process lives, however long a batch takes."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(0.8 * BEAT_SECONDS):
                self._cost = self._account.cost()  # half a millisecond, too much for each batch
                for served in self._members:
                    with self._contained(served):
                        self._say(served)

        thread = threading.Thread(target=beat, name="headrace-offload-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _leave(self) -> None:
        """Say that nothing more will come. What is published stays: the host can still read it, and removes it."""
        self._flights.clear()
        self._cost = self._account.cost()
        for served in self._served:
            served.state = "ended"
            with self._contained(served):
                self._say(served)
            self._report(f"left {served.title}: {served.gave}")
        self._makers.close()
