# SPDX-License-Identifier: Apache-2.0
"""What is known of the offload worker from one epoch to the next is its pace in most of it, not at its end."""

from __future__ import annotations

from types import SimpleNamespace

from headrace.offload.host._figures import OffloadKnowledge
from headrace.offload.host._pace import HostPace
from headrace.offload.host._schedule import EpochScheduler
from headrace.offload.host._supply import Turns
from headrace.offload.strategies._strategies import Mte

BATCHES = 320


def make_scheduler(knowledge, batches=BATCHES):
    plan = SimpleNamespace(remaining=batches, rank=0, world_size=1, n=batches)
    return EpochScheduler(Mte(), knowledge, SimpleNamespace(trouble=None), plan, SimpleNamespace(epoch=0, pattern=None))


def make_supply(worker_seconds, batches):
    beat = SimpleNamespace(seconds_per_batch=worker_seconds, state="working", reason="", ahead_bytes=1e9)
    prepared = SimpleNamespace(
        beat=beat, lost=None, published=0, batch_bytes=1000, read_seconds=[0.001], read_cpu=[0.001]
    )
    prepared.want = lambda _bottom, _following: None
    turns = Turns(batches, None)
    pace = SimpleNamespace(pace=lambda: HostPace(0.01, 0.0, 0.0) if turns.slot > 1 else None)
    return SimpleNamespace(turns=turns, prepared=prepared, pace=pace, claimed=0, given_up=None)


def run_epoch(scheduler, paces, batches=BATCHES):
    """Run an epoch with these seconds per batch, one per 16 slots; the last one until its end."""
    supply = make_supply(0.0, batches)
    scheduler._next_epoch = lambda: None
    for slot in range(batches):
        supply.prepared.beat.seconds_per_batch = paces[min(slot // 16, len(paces) - 1)]
        scheduler.update(supply, None)
        supply.turns.take(prepared=supply.turns.is_prepared(ready=False))
    scheduler.finish(supply, 0, 1.0)


def test_the_pace_of_most_of_an_epoch_is_kept():
    knowledge = OffloadKnowledge()
    run_epoch(make_scheduler(knowledge), [0.04] * 14 + [0.09] * 6)

    assert knowledge.worker_seconds == 0.04
    assert knowledge.plans[0]["times"]["worker"] == 0.04


def test_an_epoch_is_not_planned_by_the_end_of_the_one_before():
    knowledge = OffloadKnowledge()
    run_epoch(make_scheduler(knowledge), [0.04] * 14 + [0.09] * 6)
    run_epoch(make_scheduler(knowledge), [0.09] + [0.05] * 19)

    assert knowledge.plans[1]["times"]["worker"] == 0.04
    assert knowledge.worker_seconds == 0.05


def test_an_epoch_of_two_batches_is_planned_by_those_before():
    """Its own slots are over before both sides are measured."""
    knowledge = OffloadKnowledge()
    for _ in range(2):
        run_epoch(make_scheduler(knowledge, 2), [0.004], 2)

    assert [plan["pattern"]["near"] > 0 for plan in knowledge.plans] == [True]
