# SPDX-License-Identifier: Apache-2.0
"""Epochs in simulated time: accelerators in step, near devices that serve them in turn, and one link. Pure.

The strategies and the walk from both ends are those of the loader; only what takes time is pretended. Events are the
ends of things under way: a host prong's batch, a near device's, a transfer over the link, the step of all ranks.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field, replace

from headrace.prongs._model import Times, Watts, energy, interleaved
from headrace.prongs._pattern import Turns
from headrace.prongs._strategy import Outlook, Strategy

# Batches of the next epoch that near devices begin with before it begins, where nothing else limits them.
_NEXT_EPOCH = 4
# Prepared batches that a rank has read before they are wanted, as the loader does.
_FETCHED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What there is, and how long it takes. Times are seconds a batch."""

    host: float
    """Of the host prong of one rank."""
    near: float
    """Of one near device that does nothing else."""
    step: float = 0.0
    copy: float = 0.0
    read: float = 0.0
    accelerators: int = 1
    devices: int = 1
    batches: int = 1000
    """A rank has in an epoch."""
    batch_bytes: float = 0.0
    link_rate: float | None = None
    """Bytes a second that prepared batches of all ranks share; None for any number."""
    take: float = 0.0
    """Seconds of the host prong's that reading a prepared batch takes."""
    fetch: float = 0.0
    """Seconds that it takes by the clock. A rank reads one at a time, and two before they are wanted."""
    ahead: int = 2
    """Batches that a host prong has under way or ready."""
    capacity: int | None = None
    """Prepared batches of a rank that may lie unread."""
    unevenness: float = 0.0
    """The standard deviation of a batch's time, as a part of it."""
    watts: Watts = field(default_factory=Watts)

    @property
    def link(self) -> float:
        """For how long one prepared batch occupies the link."""
        return self.batch_bytes / self.link_rate if self.link_rate else 0.0

    @property
    def times(self) -> Times:
        """What one rank sees: its share of the devices, and of the link."""
        near = self.near * self.accelerators / max(1, self.devices)
        shared = self.link * self.accelerators
        link, take = max(shared, self.fetch), max(self.take, self.link)
        return Times(self.host, near, self.step, self.copy, self.read, link=link, take=take)


@dataclass(slots=True)
class Outcome:
    """What one epoch came to, for all ranks together."""

    seconds: float
    batches: int
    """A rank."""
    near_batches: int
    """Of these, from the near devices."""
    wait_seconds: float
    longest_wait: float
    host_seconds: float
    """Busy, over all ranks."""
    near_seconds: float
    joules: float
    off: str | None
    modelled: float

    @property
    def seconds_a_batch(self) -> float:
        return self.seconds / self.batches


@dataclass(slots=True)
class _Rank:
    claimed: int = 0
    made: int = 0
    consumed: int = 0
    working: bool = False
    near_claimed: int = 0
    landed: int = 0
    fetching: bool = False
    arrived: int = 0
    near_consumed: int = 0
    reading: float = 0.0
    """What the host prong has yet to spend on batches that have arrived."""

    def begin_epoch(self) -> None:
        """Start anew with what was prepared, or begun, of the next epoch."""
        self.near_claimed -= self.near_consumed
        self.landed -= self.near_consumed
        self.arrived -= self.near_consumed
        self.claimed = self.made = self.consumed = self.near_consumed = 0


@dataclass(slots=True)
class _Busy:
    host: float = 0.0
    near: float = 0.0
    waits: list[float] = field(default_factory=list)


class Simulation:
    """Epochs, one after the other. With `goes_on`, near devices prepare the next one's tail when this one's is done."""

    def __init__(self, setting: Setting, strategy: Strategy | None, *, goes_on: bool = False, seed: int = 0) -> None:
        self._setting, self._strategy, self._goes_on = setting, strategy, goes_on
        self._random = random.Random(seed)  # noqa: S311 - nobody's secret
        self._now = 0.0
        self._events: list[tuple[float, int, str, int]] = []
        self._number = 0
        self._ranks = [_Rank() for _ in range(setting.accelerators)]
        self._idle = deque(range(setting.devices if strategy is not None else 0))
        self._turn = 0
        self._link_free = 0.0
        self._stepping = False
        self._ended = 0.0
        self._last_near = False
        self._busy = _Busy()
        self._turns = Turns(0, None)
        self._quota: int | None = 0

    def epoch(self) -> Outcome:
        """Run one epoch."""
        setting = self._setting
        off: str | None = "there is no near prong"
        modelled = setting.batches * max(setting.host, setting.step + setting.copy)
        self._turns = Turns(setting.batches, None)
        self._quota = 0
        for rank in self._ranks:
            rank.begin_epoch()
        if self._strategy is not None:
            outlook = Outlook(setting.batches, min(rank.landed for rank in self._ranks), setting.capacity)
            decision = self._strategy.decide(setting.times, outlook)
            self._turns.replan(decision.pattern)
            off = decision.off
            modelled = decision.seconds or modelled
            self._quota = None if decision.pattern is None else setting.batches - self._turns.bottom
        begun, self._busy = self._now, _Busy()
        self._ended = begun
        self._start_all()
        while self._turns.remaining or self._stepping:
            self._advance()
        near_batches = self._ranks[0].near_consumed
        seconds = self._now - begun
        busy = self._busy
        joules = energy(
            setting.watts, host_seconds=busy.host, near_seconds=busy.near, epoch_seconds=seconds * setting.accelerators
        )
        waits = busy.waits
        return Outcome(
            seconds, setting.batches, near_batches, sum(waits), max(waits, default=0.0), busy.host, busy.near, joules,
            off, modelled,
        )  # fmt: skip

    # Events.

    def _at(self, seconds: float, kind: str, who: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (self._now + seconds, self._number, kind, who))

    def _uneven(self, seconds: float) -> float:
        spread = self._setting.unevenness
        return seconds * max(0.1, self._random.gauss(1.0, spread)) if spread else seconds

    def _advance(self) -> None:
        self._now, _, kind, who = heapq.heappop(self._events)
        if kind == "host":
            self._ranks[who].made += 1
            self._ranks[who].working = False
        elif kind == "near":
            device, rank = divmod(who, self._setting.accelerators)
            self._idle.append(device)
            self._link_free = max(self._link_free, self._now) + self._setting.link
            self._at(self._link_free - self._now, "link", rank)
        elif kind == "link":
            self._ranks[who].landed += 1
        elif kind == "fetch":
            self._ranks[who].arrived += 1
            self._ranks[who].fetching = False
            self._ranks[who].reading += self._setting.take
        else:
            self._stepping = False
            self._ended = self._now
        self._start_all()

    def _start_all(self) -> None:
        self._start_step()
        for number, rank in enumerate(self._ranks):
            self._start_host(number, rank)
            self._start_fetch(number, rank)
        self._start_near()

    def _start_step(self) -> None:
        turns = self._turns
        if self._stepping or not turns.remaining:
            return
        ready = [self._near_ready(rank) for rank in self._ranks]
        near = turns.is_near(all(ready))
        if turns.pattern is None:  # a rank whose host has no more to make takes what its near devices have
            from_near = [
                near or (got and not self._host_left(rank)) for rank, got in zip(self._ranks, ready, strict=True)
            ]
        else:
            from_near = [near] * len(ready)
        there = [
            got if prepared else rank.made > rank.consumed
            for rank, got, prepared in zip(self._ranks, ready, from_near, strict=True)
        ]
        if not all(there):
            return
        turns.take(near)
        for rank, prepared in zip(self._ranks, from_near, strict=True):
            if prepared:
                rank.near_consumed += 1
            else:
                rank.consumed += 1
        self._busy.waits.append(self._now - self._ended)
        self._stepping = True
        self._at(self._setting.step + (self._setting.read if near else self._setting.copy), "step", 0)

    def _near_ready(self, rank: _Rank) -> bool:
        """Whether a prepared batch of this epoch is there; those beyond the near devices' share are of the next."""
        most = self._turns.batches - rank.claimed if self._quota is None else self._quota
        return min(rank.arrived, most) > rank.near_consumed

    def _host_left(self, rank: _Rank) -> bool:
        return rank.claimed > rank.consumed or rank.claimed + rank.near_claimed < self._setting.batches

    def _start_host(self, number: int, rank: _Rank) -> None:
        # One that is being trained on still occupies its buffer's place with the trainer, not with the prong.
        if rank.working or rank.claimed - rank.consumed >= self._setting.ahead:
            return
        quota = self._quota
        if rank.claimed + (rank.near_claimed if quota is None else quota) >= self._setting.batches:
            return
        rank.claimed += 1
        rank.working = True
        seconds = self._uneven(self._setting.host) + rank.reading
        rank.reading = 0.0
        self._busy.host += seconds
        self._at(seconds, "host", number)

    def _start_fetch(self, number: int, rank: _Rank) -> None:
        ahead = rank.arrived - rank.near_consumed
        if rank.fetching or rank.landed <= rank.arrived or (self._setting.fetch and ahead >= _FETCHED):
            return
        rank.fetching = True
        self._at(self._setting.fetch, "fetch", number)

    def _start_near(self) -> None:
        while self._idle:
            ranks = self._setting.accelerators
            chosen = next((at % ranks for at in range(self._turn, self._turn + ranks) if self._wants(at % ranks)), None)
            if chosen is None:
                return
            self._turn = (chosen + 1) % ranks
            self._ranks[chosen].near_claimed += 1
            device = self._idle.popleft()
            seconds = self._uneven(self._setting.near)
            self._busy.near += seconds
            self._at(seconds, "near", device * ranks + chosen)

    def _wants(self, number: int) -> bool:
        rank, capacity = self._ranks[number], self._setting.capacity
        if capacity is not None and rank.near_claimed - rank.near_consumed >= capacity:
            return False
        most = self._setting.batches - rank.claimed if self._quota is None else self._quota
        return rank.near_claimed < most + (_NEXT_EPOCH if self._goes_on else 0)


def simulate(setting: Setting, strategy: Strategy | None, *, seed: int = 0) -> Outcome:
    """Simulate one epoch from a standing start; without a strategy there is no near prong."""
    return Simulation(setting, strategy, seed=seed).epoch()


def scaled(setting: Setting, *, accelerators: int, devices: int) -> Setting:
    """Give the same machine with so many accelerators and near devices."""
    return replace(setting, accelerators=accelerators, devices=devices)


def expected(setting: Setting) -> float:
    """Seconds a batch that the model of `wrr` and `paced` gives."""
    return interleaved(setting.times)
