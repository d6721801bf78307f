# SPDX-License-Identifier: Apache-2.0
"""What is decided in the course of one epoch: by which pattern it is walked, and what the offload worker is asked for.

Rank 0 decides, at slots that are the same for all: at the start of an epoch if something is known from the one before,
else at slot 10, 15, 20 … until both sides have been timed. With several ranks it publishes what it has decided in the
exchange folder, and the others wait for it there, so that all walk by the same pattern.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from headrace.errors import LoaderError
from headrace.loader.supply import EpochPlan, StopSign, check
from headrace.offload._untrusted import MALFORMED, printable, text
from headrace.offload.exchange import Stretch
from headrace.offload.host._absent import Exchange
from headrace.offload.host._measure import HostPace
from headrace.offload.host._record import Record
from headrace.offload.host._supply import OffloadSupply
from headrace.offload.strategies._model import Times
from headrace.offload.strategies._pattern import HOST_ONLY, Pattern
from headrace.offload.strategies._strategy import Decision, Outlook, Strategy

CALIBRATION = 10
"""Batches of the host's after which both sides are first compared."""
PLAN_SECONDS = 60.0
"""How long a rank waits for rank 0's plan: all train in step, so rank 0 is no further behind than that."""

# Slots after which both sides are compared again if they could not be, or a quarter more.
_AGAIN = 5
_MOST_PLANS = 1000
_POLL_SECONDS = 0.005
# How often the pace is worked out, and how exactly the offload worker knows where the host stands while it is far off.
_EVERY = 16

_log = logging.getLogger("headrace.loader")


@dataclass(slots=True)
class OffloadKnowledge:
    """What is known of both sides from one epoch to the next."""

    pace: HostPace | None = None
    near_seconds: float | None = None
    link_seconds: float = 0.0
    take_seconds: float = 0.0
    off: str | None = None
    iterations: int = 0
    plans: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """What each epoch had of the offload worker."""
    said: set[str] = field(default_factory=set)

    def say(self, off: str) -> None:
        """Tell once for each reason that the offload worker is not used."""
        self.off = off
        kind = off.split(":", maxsplit=1)[0]
        if kind not in self.said:
            self.said.add(kind)
            _log.warning("offloading is off: %s", off)


class EpochScheduler:
    """Decides how one epoch is walked."""

    def __init__(
        self, strategy: Strategy, knowledge: OffloadKnowledge, exchange: Exchange, plan: EpochPlan, record: Record
    ) -> None:
        self._strategy, self._knowledge, self._exchange = strategy, knowledge, exchange
        self._plan, self._record = plan, record
        self._first = min(CALIBRATION, max(1, plan.remaining // 4))
        # In a process's first epoch nothing is known on any rank; later it is rank 0's affair whether it knows enough.
        self._due = 0 if knowledge.iterations else self._first
        knowledge.iterations += 1
        self._iteration = knowledge.iterations
        self._settled = False
        self._bottom = 0
        self._near_paces: list[float] = []
        self._decisions: dict[str, Any] = {}

    @property
    def epoch(self) -> int:
        return self._record.epoch

    def follow(self, pattern: Pattern) -> None:
        """EpochScheduler by a pattern that was recorded."""
        self._settle(Decision(pattern), None, 0)

    def decide(self, supply: OffloadSupply, stop: StopSign) -> None:
        """Say how to go on, before each slot."""
        slot = supply.turns.slot
        if slot % _EVERY == 0:
            self._learn(supply)
        if not self._settled and slot == self._due:
            self._learn(supply)
            decision, times = self._ask(supply, stop)
            if decision is None:
                self._due = max(self._first, slot + max(_AGAIN, slot // 4))
            else:
                self._settle(decision, times, slot, supply.near.published)
                supply.turns.replan(decision.pattern)
            self.order(supply)
        elif supply.turns.pattern is None:
            self.order(supply)

    # What the offload worker is asked for.

    def order(self, supply: OffloadSupply) -> None:
        """Ask the offload worker for its share, and then for the next epoch's."""
        turns = supply.turns
        if supply.given_up is not None or (self._settled and turns.pattern == HOST_ONLY):
            supply.near.want(turns.tail, None)
            return
        if turns.pattern is None:
            self._bottom = self._meeting_point(supply)
        else:
            self._bottom = turns.bottom if self._settled else max(supply.claimed, turns.batches // 2)
        supply.near.want(self._bottom, self._next_epoch())

    def _meeting_point(self, supply: OffloadSupply) -> int:
        """Give the batch down to which the offload worker gets before the host is there, where nothing is planned.

        It begins with none that it could not finish, and goes on with the next epoch instead. Where it has been told
        to go to before is changed by two batches or more, or if the host has come there.
        """
        known = self._knowledge
        published = supply.turns.tail - supply.near.published
        if known.pace is None or known.near_seconds is None:
            return supply.claimed - supply.claimed % _EVERY
        left = max(0, published - supply.claimed)
        share = known.pace.host / (known.pace.host + known.near_seconds)
        found = max(supply.claimed, published - int(left * share))
        return found if abs(found - self._bottom) > 1 or self._bottom < supply.claimed else self._bottom

    def _next_epoch(self) -> Stretch:
        whole = len(self._plan)
        return Stretch(self.epoch + 1, 0, self._plan.n, whole // 2, whole)

    # What is decided.

    def _settle(self, decision: Decision, times: Times | None, slot: int, ready: int = 0) -> None:
        self._settled = True
        if decision.off is None:
            self._knowledge.off = None
        else:
            self._knowledge.say(decision.off)
        if decision.pattern is not None:
            self._record.pattern = decision.pattern.delayed(slot) if slot else decision.pattern
        plans = self._knowledge.plans
        plans.append(
            {
                "epoch": self.epoch,
                "pattern": None if self._record.pattern is None else self._record.pattern.to_json(),
                "off": decision.off,
                "times": None if times is None else asdict(times),
                "ready": ready,
            }
        )
        del plans[:-_MOST_PLANS]

    def _ask(self, supply: OffloadSupply, stop: StopSign) -> tuple[Decision | None, Times | None]:
        slot = supply.turns.slot
        if self._plan.rank > 0:
            return self._published(slot, stop), None
        decision, times = self._judge(supply)
        if self._plan.world_size > 1:
            said = None if decision is None or decision.pattern is None else decision.pattern.to_json()
            self._decisions[str(slot)] = {"pattern": said, "off": None if decision is None else decision.off}
            self._exchange.publish_plan(self.epoch, {"iteration": self._iteration, "decisions": self._decisions})
            if self._exchange.trouble is not None:
                return Decision(HOST_ONLY, f"the exchange folder: {self._exchange.trouble}"), times
        return decision, times

    def _judge(self, supply: OffloadSupply) -> tuple[Decision | None, Times | None]:
        near, known, remaining = supply.near, self._knowledge, supply.turns.remaining
        beat = near.beat
        if beat is not None and beat.state == "refused":
            return Decision(HOST_ONLY, f"the offload worker refuses: {beat.reason}"), None
        if known.pace is None or known.near_seconds is None or near.lost is not None:
            return None, None
        times = known.pace.with_near(known.near_seconds, known.link_seconds, known.take_seconds)
        capacity = beat.ahead_bytes // near.batch_bytes if beat is not None and near.batch_bytes else None
        return self._strategy.decide(times, Outlook(remaining, near.published, capacity)), times

    def _published(self, slot: int, stop: StopSign) -> Decision | None:
        """Wait for what rank 0 has decided at this slot."""
        deadline = time.monotonic() + PLAN_SECONDS
        found = "no plan"
        while time.monotonic() < deadline:
            plan = self._exchange.read_plan(self.epoch)
            try:
                if plan is not None and self._is_decided(plan, slot):
                    return _decision(plan["decisions"][str(slot)])
                found = "no plan" if plan is None else "a plan that does not say"
            except MALFORMED as error:  # written by somebody else; rank 0 may still write its own
                found = printable(f"a plan that makes no sense ({error})")
            if self._exchange.trouble is not None:
                return Decision(HOST_ONLY, f"the exchange folder: {self._exchange.trouble}")
            check(stop)
            time.sleep(_POLL_SECONDS)
        raise LoaderError(
            f"rank {self._plan.rank} has waited {PLAN_SECONDS:.0f} s for rank 0's plan of epoch {self.epoch} in "
            f"{self._exchange.path} and found {found}: give all ranks the same exchange folder, or leave near out"
        )

    def _is_decided(self, plan: dict[str, Any], slot: int) -> bool:
        return bool(plan.get("iteration") == self._iteration and str(slot) in plan["decisions"])

    def _learn(self, supply: OffloadSupply) -> None:
        known, near = self._knowledge, supply.near
        known.pace = supply.measure.pace() or known.pace
        if near.beat is not None and near.beat.seconds_a_batch is not None:
            self._learn_near(near.beat.seconds_a_batch, supply.turns.slot)
        reads, used = list(near.read_seconds), list(near.read_cpu)
        if reads and used:
            known.link_seconds, known.take_seconds = median(reads), median(used)

    def _learn_near(self, seconds: float, slot: int) -> None:
        """Note the offload worker's pace; once it is decided how to schedule, that of most of the epoch counts.

        The end of an epoch may be unlike the rest of it: where prepared batches are read one after the other, the
        offload worker has its storage for half of the time.
        """
        known = self._knowledge
        if not self._settled:
            if slot or known.near_seconds is None:  # at slot 0 it is still the end of the epoch before
                known.near_seconds = seconds
            return
        self._near_paces.append(seconds)
        known.near_seconds = median(self._near_paces)


def _decision(said: Any) -> Decision | None:
    """Read what rank 0 has decided at a slot; one of `MALFORMED` if it makes no sense."""
    off = said["off"] if said["off"] is None else text("off", said["off"])
    if said["pattern"] is None:
        return None
    return Decision(Pattern.from_json(said["pattern"]), off)
