# SPDX-License-Identifier: Apache-2.0
"""What a strategy is: from what was measured to who takes which slot. Pure: no clock, no file, no thread.

    times, batches ──► Strategy.decide ──► Decision ──► Turns ──► the order of an epoch

An offload worker that cannot make the training faster is switched off: where the trainer takes as long for a batch as
the host does; where the link is what limits the host already, or costs it more than making the batch; and where the
offload worker would not finish a single batch in time. With `spare_host` it stays on beside a slow trainer, and the
host rests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from headrace.offload.strategies._model import Times, host_only, interleaved
from headrace.offload.strategies._pattern import HOST_ONLY, Pattern

LEAST_GAIN = 1.01
"""Below this the offload worker is not worth its files."""


class Outlook(NamedTuple):
    """What an epoch, or what is left of one, begins with."""

    batches: int
    """That are left."""
    ready: int = 0
    """Prepared batches that are there already."""
    capacity: int | None = None
    """Prepared batches that may lie unread at a time; None for any number."""


class Decision(NamedTuple):
    """How the rest of an epoch is walked."""

    pattern: Pattern | None
    """Who takes which slot; None to take what is ready."""
    off: str | None = None
    """Why the offload worker is not used, if it is not."""
    seconds: float | None = None
    """What the model says that the rest takes."""


@dataclass(frozen=True)
class Strategy(ABC):
    """How host and offload worker share an epoch.

    Args:
        plans: What was decided in another run, by epoch: patterns, or the objects that `Loader.stats` gives. These
            epochs are walked in the very same order; others are planned.
        spare_host: Keep the offload worker at work where the trainer sets the pace, so that the host needs less CPU.

    """

    plans: Mapping[int, Pattern] | Sequence[Mapping[str, Any]] = field(default_factory=dict)
    spare_host: bool = False

    name: ClassVar[str]
    follows_pattern: ClassVar[bool] = True
    """Whether the order is a pure function of the plan, and not of timing."""
    host_helps: ClassVar[bool] = True
    """Whether a host that is ahead makes batches of an offload worker that is behind, for their slots."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "plans", _by_epoch(self.plans))

    def recorded(self, epoch: int) -> Pattern | None:
        """Give what an epoch was given to be walked by."""
        assert isinstance(self.plans, Mapping)
        return self.plans.get(epoch)

    def decide(self, times: Times, outlook: Outlook) -> Decision:
        """Say how the rest of an epoch is walked, given what was measured."""
        why = self.why_off(times, outlook.batches)
        if why is not None:
            return Decision(HOST_ONLY, why, outlook.batches * host_only(times))
        return self.share(times, outlook)

    @abstractmethod
    def share(self, times: Times, outlook: Outlook) -> Decision:
        """Divide the rest of an epoch between host and offload worker that are both worth while."""

    def why_off(self, times: Times, batches: int) -> str | None:
        """Say why the offload worker has nothing to give; None if it has."""
        if times.take >= times.host:
            return (
                f"the link: it takes {shown(times.take)} to read a prepared batch, and the host makes one in "
                f"{shown(times.host)}"
            )
        arrival = max(times.take, times.link)
        if times.reading > times.host / 2 and arrival >= times.reading:
            return (
                f"the link: the host waits {shown(times.reading)} for the images of a batch, and a prepared one "
                f"takes {shown(arrival)} to read"
            )
        if times.supply >= batches * interleaved(times):
            return f"the offload worker takes {shown(times.supply)} for a batch, longer than all that is left"
        if self.spare_host or host_only(times) >= LEAST_GAIN * interleaved(times):
            return None
        if times.step + times.copy >= times.host / LEAST_GAIN:
            return (
                f"the trainer: it takes {shown(times.step + times.copy)} for a batch, and the host makes one in "
                f"{shown(times.host)}"
            )
        return (
            f"the offload worker takes {shown(times.supply)} for a batch, and the host {shown(times.host)}: it would "
            f"add less than {LEAST_GAIN - 1:.0%}"
        )


def _by_epoch(plans: Any) -> dict[int, Pattern]:
    pairs = plans.items() if isinstance(plans, Mapping) else [(plan["epoch"], plan["pattern"]) for plan in plans]
    return {
        int(epoch): pattern if isinstance(pattern, Pattern) else Pattern.from_json(pattern)
        for epoch, pattern in pairs
        if pattern is not None  # what was ready was taken, which cannot be repeated
    }


def shown(seconds: float) -> str:
    """Seconds, for people."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
