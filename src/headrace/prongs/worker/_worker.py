# SPDX-License-Identifier: Apache-2.0
"""The near worker's loop: finds ranks to serve, makes their batches in turn, publishes them, says that it lives."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headrace.errors import HeadraceError
from headrace.loader._prongs_maker import Making
from headrace.prongs._accounting import Account
from headrace.prongs._exchange import BEAT_SECONDS, BatchName
from headrace.prongs._exchange_folder import sweep_rank
from headrace.prongs._exchange_machine import new_token
from headrace.prongs._exchange_near import Gone
from headrace.prongs.worker._maker import Makers
from headrace.prongs.worker._search import Search
from headrace.prongs.worker._served import Served
from headrace.records import open_dataset

# Each look costs a fifth of a millisecond, which an eighth of a core feels: while a batch is made there are few.
_MAKING_SECONDS = 0.1
_WAIT_SECONDS = 0.02
_IDLE_SECONDS = 0.05
_SAMPLES_A_THREAD = 2


class Progress(NamedTuple):
    """How a near worker is doing, for people to look at."""

    ranks: int
    batches: int
    seconds_a_batch: float | None
    held_bytes: int
    cpu_seconds: float
    trouble: str


class Flight(NamedTuple):
    """A batch that is being made."""

    served: Served
    name: BatchName
    making: Making


class NearWorker:
    """Prepares batches for all ranks in an exchange folder, one batch of each in turn.

    Args:
        dataset: The dataset, as the host has it; its fingerprint is compared.
        exchange: The folder that both sides see. It may appear later, and vanish.
        threads: Samples that are worked on at a time.
        ahead_bytes: How many bytes of unread batches may lie in the folder, of all ranks together; each has one batch
            at least.
        cpu_share: What the caller limits each thread's core to; only told on to the host.
        ranks: Serve these alone; None is all.
        watts: What a busy core takes, for the energy account.

    """

    def __init__(
        self,
        dataset: Path,
        exchange: Path,
        *,
        threads: int = 1,
        ahead_bytes: int = 2 * 10**9,
        cpu_share: float = 1.0,
        ranks: Collection[int] | None = None,
        watts: float | None = None,
    ) -> None:
        open_dataset(dataset)  # what is wrong with it is better said now
        self.name = new_token()
        self._exchange, self._threads, self._cpu_share = exchange, threads, cpu_share
        self._ahead_bytes = ahead_bytes
        self._makers = Makers(dataset, threads)
        self._search = Search(exchange, self.name, self._makers, ranks)
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

    def run(self, *, once: bool = False, show: Callable[[NearWorker], None] | None = None) -> None:
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

    def progress(self) -> Progress:
        """Tell people how it goes."""
        served = self._members
        times = [one.seconds_a_batch for one in served if one.seconds_a_batch is not None]
        return Progress(
            ranks=len(served),
            batches=self._past_batches + sum(one.batches for one in served),
            seconds_a_batch=sum(times) / len(times) / max(1, len(served)) if times else None,
            held_bytes=sum(one.held_bytes for one in served),
            cpu_seconds=self._cost.cpu_seconds,
            trouble=next((one.reason for one in served if one.reason), self._search.trouble),
        )

    # Whom to serve.

    def _look_around(self) -> None:
        for found in self._search.look({served.near.folder for served in self._served}):
            self._served.append(found)
            self._members = tuple(self._served)
            self._has_served = True
        share = self._ahead_bytes // max(1, len(self._served))
        for served in self._members:
            try:
                if served in self._lost:
                    self._drop(served)
                else:
                    self._refresh(served, share)
            except Gone:
                self._drop(served)

    def _refresh(self, served: Served, ahead_bytes: int) -> None:
        try:
            served.refresh(ahead_bytes)
        except OSError as error:
            served.fail(error)
        if served.is_abandoned():
            self._drop(served)
            sweep_rank(served.near.folder)

    def _drop(self, served: Served) -> None:
        self._served.remove(served)
        self._members = tuple(self._served)
        self._lost.discard(served)
        self._past_batches += served.batches
        self._past_bytes += served.written_bytes
        self._flights = deque(flight for flight in self._flights if flight.served is not served)
        self._makers.give_back(served.near)

    # Batches.

    def _work(self) -> bool:
        """Bring the oldest batch under way a little further, and others with it; False if there is none."""
        # What the host has made itself meanwhile need not be finished.
        self._flights = deque(flight for flight in self._flights if flight.served.wants(flight.name))
        self._begin(self._most_flights())
        if not self._flights:
            return False
        if self._flights[0].making.wait(_MAKING_SECONDS):
            self._begin(self._most_flights() + 1)  # threads go on while this one is written
            self._finish(self._flights[0])
            self._flights.popleft()
        return True

    def _begin(self, most: int) -> None:
        """Submit batches, of each rank in turn, until so many are under way."""
        for _ in range(len(self._served)):
            while len(self._flights) < most:
                served = self._served[0]
                name = served.next_name([flight.name for flight in self._flights if flight.served is served])
                self._served.rotate(-1)
                if name is None:
                    break
                try:
                    self._flights.append(Flight(served, name, served.maker.begin(name)))
                except (HeadraceError, IndexError, ValueError) as error:  # no batch of this rank has such a name
                    self._publish(served, name, {}, str(error))

    def _most_flights(self) -> int:
        """Enough for each thread to find samples waiting, however small the batches."""
        smallest = min((int(served.near.recipe["batch_size"]) for served in self._served), default=1)
        return max(1, -(-_SAMPLES_A_THREAD * self._threads // smallest))

    def _finish(self, flight: Flight) -> None:
        try:
            batch = flight.making.take()
        except HeadraceError as error:
            self._publish(flight.served, flight.name, {}, str(error))
        else:
            self._publish(flight.served, flight.name, batch)

    def _publish(self, served: Served, name: BatchName, batch: Any, declined: str | None = None) -> None:
        try:
            try:
                served.publish(name, batch, declined)
            except OSError as error:
                served.fail(error)
            self._say(served)
        except Gone:
            self._lost.add(served)

    # Signs of life.

    def _say(self, served: Served) -> None:
        beat = replace(
            served.heartbeat(),
            ranks=len(self._members),
            threads=self._threads,
            cpu_share=self._cpu_share,
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
                    try:
                        self._say(served)
                    except Gone:
                        self._lost.add(served)

        thread = threading.Thread(target=beat, name="headrace-near-beat", daemon=True)
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
            with contextlib.suppress(Gone):
                self._say(served)
        self._makers.close()
