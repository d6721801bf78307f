# SPDX-License-Identifier: Apache-2.0
"""Strategies: from measured times to which slots get prepared batches. Pure: no clock, no file, no thread.

docs/concepts/offload.md shows the order of each strategy. An offload worker that cannot make the training faster is not
used: if the trainer is as slow as the host; if the link already limits the host, or reading a batch costs the host more
than making it; and if the worker would not finish one batch in time.

The slowest of host and worker together, or the trainer, limits the speed. Host and worker that run at the same time add
their rates, so together they need host · worker / (host + worker) seconds per batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from typing import Any, ClassVar, NamedTuple

from headrace.offload.strategies._patterns import HOST_ONLY, Pattern
from headrace.units import seconds_text

MIN_GAIN = 1.01
"""With a smaller gain, the offload worker is not worth its files."""

# The largest denominator of a ratio: an error of half a batch in an epoch of eight thousand.
_MAX_OF = 4096
# The part of the offload worker's time that is planned. If more is requested than it can make, the host waits and must
# help. If less, the worker is idle for a part of its own share, which is small.
_UTILISATION = 0.98
_UTILISATION_BESIDE_TRAINER = 0.9
# `mte` is off if the link takes more than this part of the host's time: batches are also written over it.
_MAX_LINK_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Times:
    """Measured seconds per batch, for one rank."""

    host: float  # the host, with all its threads
    worker: float  # the offload worker, including the turns of other ranks
    step: float = 0.0  # the trainer
    link: float = 0.0
    """How long reading a prepared batch occupies the link; a lower limit for prepared batches in a row."""
    take: float = 0.0  # CPU time of the host for reading a prepared batch
    reading: float = 0.0
    """The part of `host` in which it waits for encoded images, which may come over the same link."""

    def __post_init__(self) -> None:
        if not self.host > 0 or not self.worker > 0 or min(self.step, self.link, self.take, self.reading) < 0:
            raise ValueError(f"host and worker must be > 0 and the others >= 0; got {self}")

    @property
    def supply(self) -> float:
        """Seconds between two prepared batches: the offload worker's, or the link's."""
        return max(self.worker, self.link)

    @property
    def both(self) -> float:
        """Seconds per batch of host and worker together."""
        return self.host * self.supply / (self.host + self.supply)

    @property
    def alone(self) -> float:
        """Seconds per batch of a training without an offload worker."""
        return max(self.host, self.step)

    @property
    def interleaved(self) -> float:
        """Seconds per batch of a training with `wrr`, and with `paced` and the right ratio."""
        return max(self.both, self.step)


class Outlook(NamedTuple):
    """What is left of an epoch."""

    batches: int
    ready: int = 0  # prepared batches that are already there
    capacity: int | None = None  # prepared batches that may be unread at a time; None for any number


@dataclass(frozen=True, slots=True)
class Decision:
    """How the rest of an epoch is shared."""

    pattern: Pattern | None  # which slots get prepared batches; None to take them whenever they are ready
    off: str | None = None  # why the offload worker is not used, if so


@dataclass(frozen=True)
class Strategy(ABC):
    """How host and offload worker share an epoch.

    Args:
        plans: Recorded plans by epoch: patterns, or `plans` of `Loader.stats().offload`. These epochs have the same
            order again; others are planned.
        spare_host: Use the offload worker even if the trainer limits the speed, so that the host needs less CPU.

    """

    plans: Mapping[int, Pattern] | Sequence[Mapping[str, Any]] = field(default_factory=dict)
    spare_host: bool = False

    name: ClassVar[str]
    follows_pattern: ClassVar[bool] = True
    """Whether the order is a pure function of the plan, not of timing."""

    def __post_init__(self) -> None:
        plans = self.plans
        pairs = plans.items() if isinstance(plans, Mapping) else [(plan["epoch"], plan["pattern"]) for plan in plans]
        by_epoch = {
            int(epoch): pattern if isinstance(pattern, Pattern) else Pattern.from_json(pattern)
            for epoch, pattern in pairs
            if pattern is not None  # an order that depended on timing cannot be repeated
        }
        object.__setattr__(self, "plans", by_epoch)

    def recorded(self, epoch: int) -> Pattern | None:
        """Return the recorded pattern of an epoch, or None."""
        assert isinstance(self.plans, Mapping)
        return self.plans.get(epoch)

    def decide(self, times: Times, outlook: Outlook) -> Decision:
        """Decide how the rest of an epoch is shared, given the measured times."""
        why = self.why_off(times, outlook.batches)
        if why is not None:
            return Decision(HOST_ONLY, why)
        return self.share(times, outlook)

    @abstractmethod
    def share(self, times: Times, outlook: Outlook) -> Decision:
        """Divide the rest of an epoch between host and offload worker, if both are useful."""

    def why_off(self, times: Times, batches: int) -> str | None:
        """Return why the offload worker gains nothing; None if it does."""
        host, worker = seconds_text(times.host), seconds_text(times.supply)
        if times.take >= times.host:
            return (
                f"the link: reading a prepared batch takes {seconds_text(times.take)}, and the host makes one in {host}"
            )
        arrival = max(times.take, times.link)
        if times.reading > times.host / 2 and arrival >= times.reading:
            return (
                f"the link: the host waits {seconds_text(times.reading)} for the images of a batch, and reading a "
                f"prepared batch takes {seconds_text(arrival)}"
            )
        if times.supply >= batches * times.interleaved:
            return f"the offload worker takes {worker} per batch, longer than the rest of the epoch"
        if self.spare_host or times.alone >= MIN_GAIN * times.interleaved:
            return None
        if times.step >= times.host / MIN_GAIN:
            return f"the trainer: it takes {seconds_text(times.step)} per batch, and the host makes one in {host}"
        return (
            f"the offload worker takes {worker} per batch and the host {host}: the gain would be less than "
            f"{MIN_GAIN - 1:.0%}"
        )


@dataclass(frozen=True)
class Paced(Strategy):
    """Prepared batches at a fixed rate, each in the slot in which it is due.

    A slot takes T = max(host · worker / (host + worker), step) seconds, and the worker makes one batch in `worker`
    seconds, so r = T / worker of the slots could have prepared batches. The plan uses 0.98 of that, evenly spread:
    an estimate that is slightly wrong must not delay the rest. The first prepared batch comes late enough to be ready.
    An epoch takes N · T, within half a per cent of `wrr`. The order follows from the pattern alone.
    """

    name: ClassVar[str] = "paced"

    def share(self, times: Times, outlook: Outlook) -> Decision:
        """Spread the batches that the offload worker can make over the slots."""
        slot = times.interleaved
        share = _UTILISATION * slot / times.supply
        if slot > times.both:
            # The trainer limits the speed: any share is right that leaves the host no more than it can make.
            needed = max(0.0, 1 - slot / times.host)
            share = max(needed, _UTILISATION_BESIDE_TRAINER * slot / times.supply)
        ratio = Fraction(min(1.0, share)).limit_denominator(_MAX_OF) or Fraction(1, _MAX_OF)
        # Prepared batch j is done after (j + 1) · worker seconds, and its slot begins at (skip - 1 + (j + 1) / r) · T.
        # One that is ready takes the first place; further ones let the pattern begin earlier.
        phase = ratio.denominator - 1 if outlook.ready else 0
        head_start = max(0, outlook.ready - 1) * times.supply / slot
        skip = max(0, ceil(2 + times.link / slot - head_start))
        pattern = Pattern(min(skip, outlook.batches), ratio.numerator, ratio.denominator, phase)
        return Decision(pattern)


@dataclass(frozen=True)
class Mte(Strategy):
    """All batches of the host first, in order, then all of the offload worker, from the last one down.

    With m = max(host, step) and t = max(step, link), the offload worker gets S = N · m / (m + worker − t + link) of N
    batches: it works during the host's part and while its own earlier batches are trained on, except for the time in
    which they are read from the storage that it writes to. The order follows from S alone. Prepared batches are unread
    until the host's part ends, so S is limited by how many may be unread.
    """

    name: ClassVar[str] = "mte"

    def share(self, times: Times, outlook: Outlook) -> Decision:
        """Split once, so that both sides end at the same time."""
        n, pace = outlook.batches, times.alone
        gap = times.supply - max(0.0, times.step - times.link)  # batches are written while the link is free
        prepared = n if gap <= 0 else floor((n * pace + outlook.ready * times.supply) / (pace + gap))
        if outlook.capacity is not None and gap > 0:
            # What is not there when the host's part ends must be made while the others are trained on.
            prepared = min(prepared, floor(max(1, outlook.capacity) * times.supply / gap))
        prepared = min(prepared, n)
        return Decision(Pattern(n - prepared, 1, 1))

    def why_off(self, times: Times, batches: int) -> str | None:
        """Also off if prepared batches in a row gain nearly nothing, though interleaved ones would."""
        why = super().why_off(times, batches)
        if why is not None or self.spare_host or times.link <= max(times.step, _MAX_LINK_SHARE * times.host):
            return why
        return (
            f"the link: reading prepared batches in a row takes {seconds_text(times.link)} each, and the host makes "
            f"one in {seconds_text(times.host)}; 'paced' and 'wrr' read them while the host works"
        )


@dataclass(frozen=True)
class Wrr(Strategy):
    """Before each step: a prepared batch if one is ready, else the host's next one.

    The order depends on timing, so it is part of the state and cannot be repeated. Several ranks, which must take the
    same batches at the same time, cannot use it.
    """

    name: ClassVar[str] = "wrr"
    follows_pattern: ClassVar[bool] = False

    def share(self, times: Times, outlook: Outlook) -> Decision:
        """Take prepared batches whenever they are ready."""
        del times, outlook
        return Decision(None)


STRATEGIES: dict[str, type[Strategy]] = {kind.name: kind for kind in (Paced, Mte, Wrr)}


def find_strategy(given: str | Strategy) -> Strategy:
    """Return the strategy of a name, or the given strategy."""
    if isinstance(given, Strategy):
        return given
    if given not in STRATEGIES:
        names = ", ".join(map(repr, STRATEGIES))
        raise ValueError(f"strategy must be one of {names}, or a strategy object of headrace.offload; got {given!r}")
    return STRATEGIES[given]()
