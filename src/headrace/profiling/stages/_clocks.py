# SPDX-License-Identifier: Apache-2.0
"""The stages of a loader that makes samples from memory with one worker to all; its own clocks divide the time.

Stages are measured where they run: in Headrace's loader, decoding and transforms are fused in C++, and the crop decides
what is decoded. A stage that keeps a worker busy for some seconds per image has the ceiling workers / seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from headrace.measuring import Rate
from headrace.profiling._measurements import Stage, StageName
from headrace.profiling.stages._runs import TimedRun

Part: TypeAlias = tuple[StageName, str]
"""A stage, and what ran: for decoding the format."""


class ClockedRun(NamedTuple):
    """What a loader did with samples in memory."""

    run: TimedRun
    busy: Mapping[Part, float]
    """Seconds per image that workers were busy, by part."""


def core_stages(runs: Mapping[int, ClockedRun]) -> list[Stage]:
    """Return the stages that workers share, from runs with ascending numbers of workers."""
    first = next(iter(runs.values()))
    cpu_share = first.run.cpu_seconds_per_image / max(sum(first.busy.values()), 1e-12)
    # A run with one worker may be too short for a rare format.
    parts = dict.fromkeys(part for each in runs.values() for part, busy in each.busy.items() if busy > 0)
    return [
        Stage(
            name=part[0],
            rates=tuple(Rate(cores=n, rate=n / busy) for n, each in runs.items() if (busy := each.busy.get(part))),
            cpu_seconds=first.busy.get(part, 0.0) * cpu_share,
            detail=part[1],
        )
        for part in parts
    ]
