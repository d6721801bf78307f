# SPDX-License-Identifier: Apache-2.0
"""Supplies an epoch from both ends: host batches from the head, prepared ones from the tail, in a strategy's order."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from headrace.loader.supply import (
    Draft,
    EpochStart,
    PixelBatch,
    Stack,
    Stopped,
    StopSign,
    check,
    samples_of,
    submit,
    wait_for,
)
from headrace.offload.host._pace import PaceMeter
from headrace.offload.host._reader import PreparedBatches
from headrace.offload.strategies._patterns import Pattern

Outcome: TypeAlias = Literal["host", "prepared", "helped", "late", "lost", "bad"]
"""How a batch was made: by the host for a slot of its own; by the offload worker; by the host to help a slow worker, or
because the prepared batch was late, lost or bad."""

REDONE: tuple[Outcome, ...] = ("late", "lost", "bad", "helped")
"""The outcomes of a slot of the offload worker whose batch the host has made."""
MAX_LATE = 2
"""After this many late batches in a row, no prepared batch is used until the next epoch."""
MAX_BAD = 8
"""The same for batches that are damaged, forged or declined: the trainer waits while the host makes each of them."""
MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.5, 30.0

# Slots that are examined to find work for the host, as a multiple of the batches that it may have in progress.
_LOOK_AHEAD = 4
# While the trainer waits for a prepared batch: how often the host checks whether it should help.
_HELP_CHECK_SECONDS = 0.01
# The host helps if this many of its own batches are done and wait too: then the offload worker is the bottleneck.
_HELP_WHEN_DONE = 2
_MAX_HELPED = 4


@dataclass(slots=True)
class OffloadCounts:
    """Which side made how many batches since the loader was created, and how long it waited for prepared ones."""

    made: Counter[Outcome] = field(default_factory=Counter)
    wait_seconds: float = 0.0
    longest_wait: float = 0.0
    longest_limit: float = 0.0
    given_up: list[str] = field(default_factory=list)


class Turns:
    """Which batch each slot of an epoch gets. Without a pattern, a prepared batch is taken whenever one is ready."""

    def __init__(self, batches: int, pattern: Pattern | None) -> None:
        self.batches = batches
        self.head = 0
        """The host's next batch."""
        self.tail = batches
        """One above the offload worker's next batch."""
        self.replan(pattern)

    @property
    def slot(self) -> int:
        return self.head + self.batches - self.tail

    @property
    def remaining(self) -> int:
        return self.tail - self.head

    def replan(self, pattern: Pattern | None) -> None:
        """Continue with another pattern, whose slot 0 is the next slot."""
        self.pattern, self._origin = pattern, self.slot
        self._planned = b"" if pattern is None else pattern.slots(self.remaining)

    def is_prepared(self, ready: bool) -> bool:
        """Whether the next slot gets a prepared batch; `ready` says whether one is ready."""
        return ready if self.pattern is None else self.is_planned(self.slot)

    def is_planned(self, slot: int) -> bool:
        """Whether the pattern gives a prepared batch to a later slot."""
        at = slot - self._origin
        return at < len(self._planned) and self._planned[at] == 1

    def take(self, *, prepared: bool) -> int:
        """Return the batch of the next slot, from the tail or from the head, and go to the slot after it."""
        if self.remaining < 1:
            raise IndexError(f"all {self.batches} batches are taken")
        if prepared:
            self.tail -= 1
            return self.tail
        self.head += 1
        return self.head - 1

    @property
    def bottom(self) -> int:
        """The lowest batch that the offload worker will make; without a pattern, the host's next batch."""
        if self.pattern is None:
            return self.head
        done = self.slot - self._origin
        left = self.pattern.prepared_before(done + self.remaining) - self.pattern.prepared_before(done)
        return self.tail - left


def wait_limit(seconds_per_batch: float | None) -> float:
    """Return how long the loader waits for a prepared batch: twice the time that one takes, within 0.5 s and 30 s."""
    return min(MAX_WAIT_SECONDS, max(MIN_WAIT_SECONDS, 2 * (seconds_per_batch or 0.0)))


class PreparedPixels:
    """The pixels of a prepared batch. If it is late, lost or bad, the host makes it for the same slot.

    The loader waits at most `limit` seconds for it, and not at all if it is bad or the offload worker has ended.
    """

    def __init__(
        self, prepared: PreparedBatches, number: int, limit: float, make_on_host: Callable[[], PixelBatch]
    ) -> None:
        self._prepared, self._number, self._limit, self._make_on_host = prepared, number, limit, make_on_host
        self._begun: float | None = None
        self._on_host: PixelBatch | None = None
        self.outcome: Outcome = "prepared"
        self.waited = 0.0
        """Seconds that the loader has waited for the offload worker."""

    def wait(self, timeout: float) -> bool:
        if self._on_host is not None:
            return self._on_host.wait(timeout)
        if self._begun is None:
            self._begun = time.perf_counter()
        left = self._begun + self._limit - time.perf_counter()
        found = self._prepared.wait(self._number, 0.0 if self._prepared.lost else max(0.0, min(timeout, left)))
        self.waited = time.perf_counter() - self._begun
        if found == "ready":
            return True
        if found == "bad":
            self.outcome = "bad"
        elif self._prepared.lost:
            self.outcome = "lost"
        elif self.waited >= self._limit:
            self.outcome = "late"
        else:
            return False
        self._prepared.skip_from(self._number)
        self._on_host = self._make_on_host()
        return self._on_host.wait(0.0)

    def take(self) -> list[Stack]:
        return self._prepared.take(self._number) if self._on_host is None else self._on_host.take()

    def failures(self) -> list[tuple[int, int, int, str, str]]:
        return [] if self._on_host is None else self._on_host.failures()


class OffloadSupply:
    """Supplies the batches of one epoch, whoever makes them.

    The host's batches are submitted ahead; their slots are decided later. A prepared batch that is not there in time is
    made by the host for its slot, so the order is the strategy's, whatever fails.

    `decide` is called before a slot, and returns the slot before which to call it again. `finished` is called with the
    last batch: with this supply, how many batches were prepared, and the seconds since the first.
    """

    def __init__(
        self,
        epoch: EpochStart,
        prepared: PreparedBatches,
        turns: Turns,
        *,
        ahead: int,
        pace: PaceMeter,
        counts: OffloadCounts,
        decide: Callable[[OffloadSupply, StopSign], int],
        finished: Callable[[OffloadSupply, int, float], None],
    ) -> None:
        self._batches, self._tail = epoch.make_batches(False), epoch.make_batches(True)
        self._gather, self._source = epoch.gather, epoch.source
        self.prepared, self.turns = prepared, turns
        self._ahead, self.pace = ahead, pace
        self._counts, self._decide, self._finished = counts, decide, finished
        self._decide_at = 0
        self._begun: float | None = None
        self._prepared_count = 0
        self._host: deque[Draft] = deque()
        self.claimed = 0
        """One above the last batch that the host has begun, from the head."""
        self._redone: dict[int, Draft] = {}
        self._helped: dict[int, Draft] = {}
        self._in_a_row = Counter[Outcome]()
        self.given_up: str | None = None
        """Why no more prepared batches are used in this epoch, if so."""
        self.taken = bytearray()
        """For each slot so far, whether it got a batch from the tail."""

    def __len__(self) -> int:
        return len(self._batches)

    def next(self, stop: StopSign) -> Draft:
        self._begun = self._begun or time.perf_counter()
        if self.turns.slot >= self._decide_at:
            self._decide_at = self._decide(self, stop)
        self._submit(stop)
        from_tail = self.turns.is_prepared(self._is_next_ready())
        try:
            draft = self._tail_draft() if from_tail else self._head_draft()
        except IndexError:
            raise Stopped from None  # another thread has just abandoned the epoch
        self.taken.append(from_tail)
        waited = None
        if isinstance(draft.batch, PreparedPixels):
            self._wait_for_prepared(draft.batch, stop)
            self._judge(draft.batch)
        else:
            begun = time.perf_counter()
            wait_for(draft.batch, stop)
            waited = time.perf_counter() - begun
        if len(self.taken) == 1:
            self.pace.start()
        else:
            self.pace.done.append((time.perf_counter(), waited))
        self._submit(stop)
        if not self.turns.remaining:
            self._finished(self, self._prepared_count, time.perf_counter() - self._begun)
        return draft

    def _head_draft(self) -> Draft:
        draft = self._host.popleft()
        self.turns.take(prepared=False)
        self._counts.made["host"] += 1
        return draft

    def _tail_draft(self) -> Draft:
        number = self.turns.take(prepared=True)
        if number < self.claimed:  # the host began it before the plan gave it to the worker
            self.claimed = number
            self._counts.made["host"] += 1
            return self._host.pop()
        if number in self._helped or number in self._redone:
            self.prepared.skip_from(number)
            self._counts.made["helped" if number in self._helped else "lost"] += 1
            return self._helped.pop(number, None) or self._redone.pop(number)
        rows, repeat = self.prepared.samples(number) or samples_of(self._tail, number, self._gather)
        epoch, source = self._batches.epoch, self._source
        pixels = PreparedPixels(self.prepared, number, self.limit, lambda: source.submit(rows, epoch))
        return Draft(epoch, rows, repeat, pixels)

    def _is_next_ready(self) -> bool:
        """Whether the next batch of the tail is read or bad, and the host has not begun it."""
        return self.turns.tail > self.claimed and self.prepared.settled(self.turns.tail) > 0

    @property
    def limit(self) -> float:
        """How long the loader waits for a prepared batch; 0 once no more are used."""
        beat = self.prepared.beat
        return 0.0 if self.given_up else wait_limit(None if beat is None else beat.seconds_per_batch)

    def _judge(self, pixels: PreparedPixels) -> None:
        """Count a slot of the offload worker, and give up after too many that brought no prepared batch."""
        counts, outcome = self._counts, pixels.outcome
        counts.made[outcome] += 1
        counts.wait_seconds += pixels.waited
        counts.longest_wait = max(counts.longest_wait, pixels.waited)
        counts.longest_limit = max(counts.longest_limit, self.limit)
        self._in_a_row[outcome] += 1
        if outcome == "prepared":
            self._in_a_row.clear()
            self._prepared_count += 1
        elif self.given_up is None and self._in_a_row["late"] >= MAX_LATE:
            self._give_up(f"{MAX_LATE} prepared batches in a row were late by {self.limit:.3g} s")
        elif self.given_up is None and self._in_a_row["bad"] >= MAX_BAD:
            self._give_up(f"{MAX_BAD} prepared batches in a row could not be used")

    def _give_up(self, why: str) -> None:
        """Use no more prepared batches in this epoch; the host makes those of their slots."""
        self.given_up = why
        self._counts.given_up.append(why)
        self.prepared.want(self.turns.tail, None)

    # Help for an offload worker that is slower than planned.

    def _wait_for_prepared(self, pixels: PreparedPixels, stop: StopSign) -> None:
        """Wait, and let the host make later batches of the worker if the worker is behind and the host ahead."""
        while not pixels.wait(_HELP_CHECK_SECONDS):
            check(stop)
            if self.given_up is not None or not self._should_help(pixels):
                continue
            number = self._next_to_help()
            if number is not None:
                self._helped[number] = submit(self._tail, number, self._gather, self._source)
                self.prepared.skip(number)

    def _should_help(self, pixels: PreparedPixels) -> bool:
        """Whether batches of the host are done too, and the wait took half the time that the host needs for a batch.

        The host does not wait until it has nothing left to do: a batch that it takes over must be done, not only begun,
        when its slot comes.
        """
        pace = self.pace.pace()
        if pace is None or pixels.waited < pace.host / 2 or len(self._helped) == _MAX_HELPED:
            return False
        in_progress = (*self._host, *self._redone.values())
        done = sum(draft.batch.wait(0.0) for draft in in_progress)
        helped_done = all(draft.batch.wait(0.0) for draft in self._helped.values())
        return done >= min(_HELP_WHEN_DONE, len(in_progress)) and helped_done

    def _next_to_help(self) -> int | None:
        """Return the batch of the offload worker that the host makes next.

        Not the next one, if possible: the worker has begun it before it sees the new request.
        """
        tail = self.turns.tail
        lowest = max(self.turns.bottom, self.claimed, tail - _MAX_HELPED - 2)
        coming = [number for number in range(tail - 1, lowest - 1, -1) if number not in self._helped]
        return next((number for number in coming[1:2] + coming[:1] if not self.prepared.has(number)), None)

    # Work for the host, ahead of the trainer.

    def _submit(self, stop: StopSign) -> None:
        if self.turns.pattern is None:
            while self._has_room and self.claimed < self.turns.tail - self.prepared.settled(self.turns.tail):
                self._claim(stop)
            return
        alone = self.given_up is not None or self.prepared.lost is not None
        head, tail = self.turns.head, self.turns.tail
        for slot in range(self.turns.slot, self.turns.slot + _LOOK_AHEAD * self._ahead):
            if not self._has_room or head >= tail:
                return
            if self.turns.is_planned(slot):
                tail -= 1
                known = tail in self._redone or tail in self._helped or self.prepared.has(tail)
                if alone and tail >= self.claimed and not known:
                    check(stop)
                    self._redone[tail] = submit(self._tail, tail, self._gather, self._source)
            else:
                head += 1
                if head > self.claimed:
                    self._claim(stop)

    @property
    def _has_room(self) -> bool:
        return len(self._host) + len(self._redone) < self._ahead

    def _claim(self, stop: StopSign) -> None:
        check(stop)
        self._host.append(submit(self._batches, self.claimed, self._gather, self._source))
        self.claimed += 1

    def abandon(self) -> None:
        self.prepared.stop()
        self._host.clear()
        self._redone.clear()
        self._helped.clear()

    def close(self) -> None:
        self.prepared.join()
