# SPDX-License-Identifier: Apache-2.0
"""Decides in the course of an epoch which slots get prepared batches, and what the offload worker should make.

The decisions are part of the loader's state (`EpochRecord`), so that a run continues from it.

Rank 0 decides, at slots that are the same for all ranks: at the start of an epoch if the last one was measured, else at
slot 10, 15, 20 … until both sides are measured. With several ranks it publishes its decisions in the exchange folder,
and the others wait for them, so that all follow the same pattern.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median

from headrace.documents import DocumentReader
from headrace.errors import LoaderError
from headrace.loader.supply import EpochPlan, InvalidState, LoaderState, StopSign, check
from headrace.offload.exchange import HostExchange, Stretch
from headrace.offload.exchange._documents import short_text
from headrace.offload.host._figures import OffloadKnowledge, report_epoch
from headrace.offload.host._pace import MIN_SECONDS
from headrace.offload.host._supply import OffloadSupply
from headrace.offload.strategies._patterns import HOST_ONLY, Pattern
from headrace.offload.strategies._strategies import Decision, Outlook, Strategy, Times

CALIBRATION = 10
"""Host batches before the first decision, if nothing is known from an earlier epoch."""
PLAN_SECONDS = 60.0
"""How long a rank waits for rank 0's plan: all ranks train in step, so rank 0 is not further behind."""

# Slots until the next attempt to decide; later in an epoch, a quarter of the slots so far.
_RETRY_SLOTS = 5
_MAX_PLANS = 1000
_POLL_SECONDS = 0.005
# Slots between two measurements, and the precision of requests while nothing is planned.
_MEASURE_SLOTS = 16


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """What rank 0 publishes for the other ranks of an epoch."""

    iteration: int
    decisions: dict[str, Decision]  # by slot; one without a pattern says that rank 0 could not decide yet


class EpochRecord:
    """Counts the batches of one epoch from the tail, and keeps its pattern, for the state."""

    def __init__(self, begun: LoaderState, plan: EpochPlan, strategy: str) -> None:
        self._begun, self._plan, self._strategy = begun, plan, strategy
        self._stride = plan.batch_size * plan.world_size
        self.pattern: Pattern | None = None
        """Of all slots since the iteration began, once it is decided."""
        self._from_tail = self._batches = 0

    @property
    def epoch(self) -> int:
        return self._begun.epoch

    def recorded_pattern(self) -> Pattern | None:
        """Return the pattern with which the epoch continues; None if strategy or stride differ or it has none."""
        prongs = self._begun.prongs
        if prongs is None or (prongs.get("strategy"), prongs.get("stride")) != (self._strategy, self._stride):
            return None
        if not isinstance(prongs.get("pattern"), Mapping):
            return None
        try:
            return Pattern.from_json(prongs["pattern"])
        except ValueError as error:
            raise InvalidState(f"the state's offload pattern is damaged: {error}") from None

    def after(self, batches: int, taken: bytearray) -> LoaderState:
        """Return the state after `batches`; `taken` says of each slot whether its batch was from the tail."""
        self._from_tail += sum(taken[self._batches : batches])
        self._batches = batches
        pattern = None if self.pattern is None else self.pattern.after(batches).to_json()
        prongs = {"strategy": self._strategy, "stride": self._stride, "pattern": pattern}
        return self._begun.after(self._plan, batches, self._from_tail, prongs)


class EpochScheduler:
    """Decides which slots of one epoch get prepared batches."""

    def __init__(
        self,
        strategy: Strategy,
        knowledge: OffloadKnowledge,
        exchange: HostExchange | None,
        plan: EpochPlan,
        record: EpochRecord,
    ) -> None:
        self._strategy, self._knowledge, self._exchange = strategy, knowledge, exchange
        self._plan, self._record = plan, record
        self._first = min(CALIBRATION, max(1, plan.remaining // 4))
        # Nothing is known on any rank in the first epoch of a process; later rank 0 decides whether it knows enough.
        self._due = 0 if knowledge.iterations else self._first
        knowledge.iterations += 1
        self._decided = False
        self._bottom = 0
        self._worker_seconds: list[float] = []
        self._published = PublishedPlan(knowledge.iterations, {})

    @property
    def epoch(self) -> int:
        return self._record.epoch

    def follow(self, pattern: Pattern) -> None:
        """Use a recorded pattern for the whole epoch."""
        self._decide(Decision(pattern), None, 0)

    def update(self, supply: OffloadSupply, stop: StopSign) -> int:
        """Measure, decide and request batches before a slot; return the slot before which to call it again."""
        slot = supply.turns.slot
        if slot % _MEASURE_SLOTS == 0:
            self._measure(supply)
        if not self._decided and slot == self._due:
            self._measure(supply)
            decision, times = self._find_decision(supply, stop)
            if decision is None:
                self._due = max(self._first, slot + max(_RETRY_SLOTS, slot // 4))
            else:
                self._decide(decision, times, slot, supply.prepared.published)
                supply.turns.replan(decision.pattern)
            self.request(supply)
        elif supply.turns.pattern is None:
            self.request(supply)
        if supply.turns.pattern is None:
            return slot + 1
        measure_at = (slot // _MEASURE_SLOTS + 1) * _MEASURE_SLOTS
        return measure_at if self._decided or self._due <= slot else min(measure_at, self._due)

    def finish(self, supply: OffloadSupply, prepared: int, seconds: float) -> None:
        """Measure the last slots, which are all slots of a short epoch, and report what the epoch gained."""
        self._measure(supply)
        report_epoch(self._knowledge, self.epoch, supply.turns.batches, prepared, seconds)

    # What the offload worker should make.

    def request(self, supply: OffloadSupply) -> None:
        """Request the worker's share of this epoch, and then of the next."""
        turns = supply.turns
        if supply.given_up is not None or (self._decided and turns.pattern == HOST_ONLY):
            supply.prepared.want(turns.tail, None)
            return
        if turns.pattern is None:
            self._bottom = self._meeting_point(supply)
        else:
            self._bottom = turns.bottom if self._decided else max(supply.claimed, turns.batches // 2)
        supply.prepared.want(self._bottom, self._next_epoch())

    def _meeting_point(self, supply: OffloadSupply) -> int:
        """Return the lowest batch that the worker can finish before the host gets there, if nothing is planned.

        The worker begins no batch that it cannot finish; it continues with the next epoch instead. The result changes
        only by two batches or more, or if the host has reached it.
        """
        known = self._knowledge
        published = supply.turns.tail - supply.prepared.published
        if known.pace is None or known.worker_seconds is None:
            return supply.claimed - supply.claimed % _MEASURE_SLOTS
        left = max(0, published - supply.claimed)
        share = known.pace.host / (known.pace.host + known.worker_seconds)
        found = max(supply.claimed, published - int(left * share))
        return found if abs(found - self._bottom) > 1 or self._bottom < supply.claimed else self._bottom

    def _next_epoch(self) -> Stretch:
        batches = len(self._plan)
        return Stretch(self.epoch + 1, 0, self._plan.n, batches // 2, batches)

    # Decisions.

    def _decide(self, decision: Decision, times: Times | None, slot: int, ready: int = 0) -> None:
        self._decided = True
        if decision.off is None:
            self._knowledge.off = None
        else:
            self._knowledge.turn_off(decision.off)
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
        del plans[:-_MAX_PLANS]

    def _find_decision(self, supply: OffloadSupply, stop: StopSign) -> tuple[Decision | None, Times | None]:
        """Decide as rank 0, or read its decision; None if not enough is known yet."""
        exchange, slot = self._exchange, supply.turns.slot
        if self._plan.rank > 0 and exchange is not None:
            return self._read_decision(exchange, slot, stop), None
        decision, times = self._judge(supply)
        if self._plan.world_size > 1 and exchange is not None:
            self._published.decisions[str(slot)] = decision or Decision(None)
            exchange.publish_plan(self.epoch, asdict(self._published))
            if exchange.trouble is not None:
                return Decision(HOST_ONLY, f"the exchange folder: {exchange.trouble}"), times
        return decision, times

    def _judge(self, supply: OffloadSupply) -> tuple[Decision | None, Times | None]:
        prepared, known, remaining = supply.prepared, self._knowledge, supply.turns.remaining
        beat = prepared.beat
        if beat is not None and beat.state == "refused":
            return Decision(HOST_ONLY, f"the offload worker refuses: {beat.reason}"), None
        if known.pace is None or known.worker_seconds is None or prepared.lost is not None:
            return None, None
        pace, worker = known.pace, max(known.worker_seconds, MIN_SECONDS)
        times = Times(pace.host, worker, pace.step, known.link_seconds, known.take_seconds, pace.reading)
        capacity = beat.ahead_bytes // prepared.batch_bytes if beat is not None and prepared.batch_bytes else None
        return self._strategy.decide(times, Outlook(remaining, prepared.published, capacity)), times

    def _read_decision(self, exchange: HostExchange, slot: int, stop: StopSign) -> Decision | None:
        """Wait for rank 0's decision at this slot."""
        deadline = time.monotonic() + PLAN_SECONDS
        found = "no plan"
        while time.monotonic() < deadline:
            document = exchange.read_plan(self.epoch)
            try:
                if document is not None:
                    plan = DocumentReader().read(PublishedPlan, document, "the plan")
                    if plan.iteration == self._published.iteration and str(slot) in plan.decisions:
                        decided = plan.decisions[str(slot)]
                        return None if decided.pattern is None else decided
                    found = "a plan without this decision"
            except (ValueError, RecursionError) as error:  # written by somebody else; rank 0 may still write its own
                found = short_text(f"a plan that is not valid ({error})")
            if exchange.trouble is not None:
                return Decision(HOST_ONLY, f"the exchange folder: {exchange.trouble}")
            check(stop)
            time.sleep(_POLL_SECONDS)
        raise LoaderError(
            f"rank {self._plan.rank} waited {PLAN_SECONDS:.0f} s for rank 0's plan of epoch {self.epoch} in "
            f"{exchange.path} and found {found}: use the same exchange folder on all ranks, or omit offload"
        )

    # Measurements.

    def _measure(self, supply: OffloadSupply) -> None:
        known, prepared = self._knowledge, supply.prepared
        known.pace = supply.pace.pace() or known.pace
        if prepared.beat is not None and prepared.beat.seconds_per_batch is not None:
            self._note_worker(prepared.beat.seconds_per_batch, supply.turns.slot)
        reads, used = list(prepared.read_seconds), list(prepared.read_cpu)
        if reads and used:
            known.link_seconds, known.take_seconds = median(reads), median(used)

    def _note_worker(self, seconds: float, slot: int) -> None:
        """Note the worker's seconds per batch; after the decision, the median over the epoch.

        The end of an epoch may differ from the rest: while prepared batches are read one after the other, the worker
        has its storage for half of the time.
        """
        known = self._knowledge
        if not self._decided:
            if slot or known.worker_seconds is None:  # at slot 0 the value is from the end of the last epoch
                known.worker_seconds = seconds
            return
        self._worker_seconds.append(seconds)
        known.worker_seconds = median(self._worker_seconds)
