# SPDX-License-Identifier: Apache-2.0
"""An epoch from both ends: the host's own batches from the head, prepared ones from the tail, in a strategy's order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.loader.supply import (
    SLICE_SECONDS,
    Draft,
    EpochBatches,
    Gather,
    PixelSource,
    Stopped,
    StopSign,
    check,
    samples_of,
    submit,
    wait_for,
)
from headrace.offload.host._measure import Measure
from headrace.offload.host._pixels import PreparedPixels, bound_seconds
from headrace.offload.host._reader import PreparedBatches, ReadingThread
from headrace.offload.strategies._pattern import Turns

MOST_LATE = 2
"""So many late batches in a row, and the offload worker is given up until the next epoch."""
MAX_BAD = 8
"""The same for batches that are damaged, forged or declined: the host makes each of them while the trainer waits."""

# Slots that are looked at to find work for the host, as a multiple of the batches that it may have under way.
_LOOK_AHEAD = 4
# While a near batch is waited for: how often the host sees whether it has something better to do.
_GLANCE = 0.01
# Batches of the host's that are done and wait with it: so many show that the offload worker is what the rest waits for.
_HELPS_FROM = 2
# What it makes lies there until its slot comes.
_MOST_HELPED = 4


@dataclass(slots=True)
class OffloadMeters:
    """What came from where, since the loader was made."""

    host: int = 0
    near: int = 0
    helped: int = 0
    """Made by the host while it waited for an offload worker that was behind."""
    late: int = 0
    lost: int = 0
    bad: int = 0
    near_wait_seconds: float = 0.0
    longest_wait: float = 0.0
    bound: float = 0.0
    log: list[str] = field(default_factory=list)


class OffloadSupply:
    """Gives the drafts of one epoch, whoever makes them. `decide` is asked at each slot how to go on.

    `finished` is called with the last one: how many there were, how many of them prepared, and seconds since the first.

    The host's batches are submitted ahead as ever; which slot they are for is found out when it comes. A near batch
    that does not come in time is redone for its slot, so the order is the strategy's, whatever fails.
    """

    def __init__(
        self,
        batches: EpochBatches,
        tail: EpochBatches,
        gather: Gather,
        source: PixelSource,
        near: PreparedBatches,
        thread: ReadingThread,
        turns: Turns,
        *,
        ahead: int,
        helps: bool,
        measure: Measure,
        meters: OffloadMeters,
        decide: Callable[[OffloadSupply, StopSign], None],
        finished: Callable[[int, int, float], None],
    ) -> None:
        self._batches, self._tail, self._gather, self._source = batches, tail, gather, source
        self.near, self._thread, self.turns = near, thread, turns
        self._ahead, self._helps = ahead, helps
        self.measure, self._meters, self._decide, self._finished = measure, meters, decide, finished
        self._begun: float | None = None
        self._prepared = 0
        self._host: deque[Draft] = deque()
        self._claimed = 0
        self._redone: dict[int, Draft] = {}
        self._helped: dict[int, Draft] = {}
        self._late_in_a_row = self._bad_in_a_row = 0
        self.given_up: str | None = None
        self.taken = bytearray()
        """For each slot that was given out, whether it was the offload worker's."""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def claimed(self) -> int:
        """One above the last batch that the host has begun with, from the head."""
        return self._claimed

    def next(self, stop: StopSign) -> Draft:
        check(stop)
        self._begun = self._begun or time.perf_counter()
        self._decide(self, stop)
        self._submit(stop)
        near = self.turns.is_near(self._near_is_ready())
        try:
            draft = self._near_draft() if near else self._host_draft()
        except IndexError:
            raise Stopped from None  # another thread has just abandoned it
        self.taken.append(near)
        begun = time.perf_counter()
        if isinstance(draft.batch, PreparedPixels):
            self._wait_for_near(draft.batch, stop)
        else:
            wait_for(draft.batch, stop)
        self.measure.count(isinstance(draft.batch, PreparedPixels), time.perf_counter() - begun)
        self._note(draft)
        self._submit(stop)
        if not self.turns.remaining:
            self._finished(self.turns.batches, self._prepared, time.perf_counter() - self._begun)
        return draft

    def _wait_for_near(self, pixels: PreparedPixels, stop: StopSign) -> None:
        """Wait, and meanwhile make others of the offload worker's, if it is behind and the host ahead."""
        while not pixels.wait(_GLANCE if self._helps else SLICE_SECONDS):
            check(stop)
            if not self._helps or self.given_up is not None or not self._has_patience_ended(pixels):
                continue
            number = self._spared()
            if number is not None:
                self._helped[number] = submit(self._tail, number, self._gather, self._source)
                self.near.leave(number)

    def _has_patience_ended(self, pixels: PreparedPixels) -> bool:
        """Whether batches of the host's wait too, and half the time has gone by that one takes it.

        It is not waited for until the host has nothing left to do: what it makes of the offload worker's must be done
        when its slot comes, and not only begun.
        """
        pace = self.measure.pace()
        if pace is None or pixels.waited < pace.host / 2 or len(self._helped) == _MOST_HELPED:
            return False
        under_way = (*self._host, *self._redone.values())
        done = sum(draft.batch.wait(0.0) for draft in under_way)
        return done >= min(_HELPS_FROM, len(under_way)) and all(d.batch.wait(0.0) for d in self._helped.values())

    def _spared(self) -> int | None:
        """Give the batch of the offload worker's that the host makes next, to bring it back in time.

        It is not the one after that which is waited for: the offload worker has begun with it before it hears of this.
        """
        tail = self.turns.tail
        lowest = max(self.turns.bottom, self._claimed, tail - _MOST_HELPED - 2)
        coming = [number for number in range(tail - 1, lowest - 1, -1) if number not in self._helped]
        return next((number for number in coming[1:2] + coming[:1] if not self.near.has(number)), None)

    def _near_is_ready(self) -> bool:
        """Whether the offload worker's next batch is settled, and is not one that the host has begun with."""
        return self.turns.tail > self._claimed and self.near.settled(self.turns.tail) > 0

    def _host_draft(self) -> Draft:
        draft = self._host.popleft()
        self.turns.take(near=False)
        return draft

    def _near_draft(self) -> Draft:
        number = self.turns.take(near=True)
        if number < self._claimed:  # the host has begun with it, before it was decided whose it is
            self._claimed = number
            return self._host.pop()
        if number in self._helped:
            self.near.skip(number)
            self._meters.helped += 1
            return self._helped.pop(number)
        if number in self._redone:
            self.near.skip(number)
            self._meters.lost += 1
            return self._redone.pop(number)
        rows, repeat = self.near.samples(number) or samples_of(self._tail, number, self._gather)
        epoch, source = self._batches.epoch, self._source
        pixels = PreparedPixels(self.near, number, self.bound, lambda: source.submit(rows, epoch))
        return Draft(epoch, rows, repeat, pixels)

    @property
    def bound(self) -> float:
        """How long a prepared batch is waited for; not at all once the offload worker was given up."""
        beat = self.near.beat
        return 0.0 if self.given_up else bound_seconds(None if beat is None else beat.seconds_a_batch)

    def _note(self, draft: Draft) -> None:
        meters, pixels = self._meters, draft.batch
        if not isinstance(pixels, PreparedPixels):
            meters.host += 1
            return
        meters.near_wait_seconds += pixels.waited
        meters.longest_wait = max(meters.longest_wait, pixels.waited)
        meters.bound = max(meters.bound, self.bound)
        if pixels.fate == "near":
            meters.near += 1
            self._prepared += 1
            self._late_in_a_row = self._bad_in_a_row = 0
            return
        meters.host += 1
        setattr(meters, pixels.fate, getattr(meters, pixels.fate) + 1)
        if pixels.fate == "late" and self.given_up is None:
            self._late_in_a_row += 1
            if self._late_in_a_row >= MOST_LATE:
                self.give_up(f"{MOST_LATE} prepared batches in a row were late by {self.bound:.3g} s")

        if pixels.fate == "bad" and self.given_up is None:
            self._bad_in_a_row += 1
            if self._bad_in_a_row >= MAX_BAD:
                self.give_up(f"{MAX_BAD} prepared batches in a row could not be used")

    def give_up(self, why: str) -> None:
        """Expect nothing more of the offload worker in this epoch; its slots stay, and the host fills them."""
        self.given_up = why
        self._meters.log.append(why)
        self.near.want(self.turns.tail, None)

    # Work for the host, ahead of the trainer.

    def _submit(self, stop: StopSign) -> None:
        if self.turns.pattern is None:
            while self._room and self._claimed < self.turns.tail - self.near.settled(self.turns.tail):
                self._claim(stop)
            return
        alone = self.given_up is not None or self.near.lost is not None
        head, tail = self.turns.head, self.turns.tail
        for slot in range(self.turns.slot, self.turns.slot + _LOOK_AHEAD * self._ahead):
            if not self._room or head >= tail:
                return
            if self.turns.is_near_at(slot):
                tail -= 1
                known = tail in self._redone or tail in self._helped or self.near.has(tail)
                if alone and tail >= self._claimed and not known:
                    check(stop)
                    self._redone[tail] = submit(self._tail, tail, self._gather, self._source)
            else:
                head += 1
                if head > self._claimed:
                    self._claim(stop)

    @property
    def _room(self) -> bool:
        return len(self._host) + len(self._redone) < self._ahead

    def _claim(self, stop: StopSign) -> None:
        check(stop)
        self._host.append(submit(self._batches, self._claimed, self._gather, self._source))
        self._claimed += 1

    def abandon(self) -> None:
        self._thread.stop()
        self._host.clear()
        self._redone.clear()
        self._helped.clear()

    def close(self) -> None:
        self._thread.join()
