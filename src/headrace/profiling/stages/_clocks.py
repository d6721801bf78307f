# SPDX-License-Identifier: Apache-2.0
"""The stages of a loader that makes samples from memory with one worker to all; its own clocks divide the time.

Stages are measured where they run: in Headrace's loader, decoding and transforms are fused in C++, and the crop decides
what is decoded. The ceiling of a stage is the rate of the loader over the stage's share of the workers' time. So it
includes what workers do between the stages, and other load on the machine slows all stages and the loader alike.
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
    """Seconds that workers were busy, by part."""

    def share(self, part: Part) -> float:
        """Return the part's share of the workers' time."""
        return self.busy.get(part, 0.0) / (sum(self.busy.values()) or 1.0)


def core_stages(runs: Mapping[int, ClockedRun]) -> list[Stage]:
    """Return the stages that workers share, from runs with ascending numbers of workers."""
    first = next(iter(runs.values()))
    # A run with one worker may be too short for a rare format.
    parts = dict.fromkeys(part for each in runs.values() for part, busy in each.busy.items() if busy > 0)
    stages = []
    for part in parts:
        known = ((n, each.run.rate, each.share(part)) for n, each in runs.items())
        stages.append(
            Stage(
                name=part[0],
                rates=tuple(Rate(cores=n, rate=rate / share) for n, rate, share in known if rate and share),
                cpu_seconds=first.run.cpu_seconds_per_image * first.share(part),
                detail=part[1],
            )
        )
    return stages
