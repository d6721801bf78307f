# SPDX-License-Identifier: Apache-2.0
"""What is known of the offload worker from one epoch to the next is its pace in most of it, not at its end."""

from __future__ import annotations

from types import SimpleNamespace

from headrace.offload.host._measure import HostPace
from headrace.offload.host._schedule import EpochScheduler, OffloadKnowledge
from headrace.offload.strategies._mte import Mte
from headrace.offload.strategies._pattern import Turns

BATCHES = 320


def a_walk(knowledge):
    plan = SimpleNamespace(remaining=BATCHES, rank=0, world_size=1, n=BATCHES)
    return EpochScheduler(Mte(), knowledge, SimpleNamespace(trouble=None), plan, SimpleNamespace(epoch=0, pattern=None))


def a_supply(near_seconds):
    beat = SimpleNamespace(seconds_a_batch=near_seconds, state="working", reason="", ahead_bytes=1e9)
    near = SimpleNamespace(beat=beat, lost=None, published=0, batch_bytes=1000, read_seconds=[0.001], read_cpu=[0.001])
    near.want = lambda _bottom, _following: None
    measure = SimpleNamespace(pace=lambda: HostPace(0.01, 0.0, 0.0))
    return SimpleNamespace(turns=Turns(BATCHES, None), near=near, measure=measure, claimed=0, given_up=None)


def walked(scheduler, paces):
    """EpochScheduler an epoch in which the offload worker has these paces, the last of them to its end."""
    supply = a_supply(0.0)
    scheduler._next_epoch = lambda: None
    for slot in range(BATCHES):
        supply.near.beat.seconds_a_batch = paces[min(slot // 16, len(paces) - 1)]
        scheduler.decide(supply, None)
        supply.turns.take(near=supply.turns.is_near(ready=False))


def test_the_pace_of_most_of_an_epoch_is_kept():
    knowledge = OffloadKnowledge()
    walked(a_walk(knowledge), [0.04] * 14 + [0.09] * 6)

    assert knowledge.near_seconds == 0.04
    assert knowledge.plans[0]["times"]["near"] == 0.04


def test_an_epoch_is_not_planned_by_the_end_of_the_one_before():
    knowledge = OffloadKnowledge()
    walked(a_walk(knowledge), [0.04] * 14 + [0.09] * 6)
    walked(a_walk(knowledge), [0.09] + [0.05] * 19)

    assert knowledge.plans[1]["times"]["near"] == 0.04
    assert knowledge.near_seconds == 0.05
