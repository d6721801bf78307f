# SPDX-License-Identifier: Apache-2.0
"""Figures that the report shows beside the verdict, from the same pipeline: rates of formats, parts of energy."""

from __future__ import annotations

from headrace.profiling._measurements import FormatCost, Measurements
from headrace.profiling.judging._reconcile import run_pipeline
from headrace.profiling.judging._remedies_stored import format_rate, mix_rate
from headrace.profiling.judging._remedy import trainer_ceiling

REST = "rest of the loader"


def format_rates(measurements: Measurements) -> list[tuple[FormatCost, float]]:
    """Each format with the images per second that training from it would give, the fastest first."""
    now = run_pipeline(measurements)
    ceiling = trainer_ceiling(now)
    rated = [(cost, min(format_rate(cost, measurements, now), ceiling)) for cost in measurements.formats]
    return sorted(rated, key=lambda pair: -pair[1])


def rate_of_mix(measurements: Measurements) -> float | None:
    """ImageSample per second that training from the planner's mix would give; None if there is none."""
    now = run_pipeline(measurements)
    rate = mix_rate(measurements, now)
    return None if rate is None else min(rate, trainer_ceiling(now))


def energy_parts(measurements: Measurements) -> dict[str, float]:
    """Joules per image by part, which add up to the energy of an image; empty if no parts are known.

    An estimate that names no parts is divided by the CPU time of each stage alone. What the loader took beyond its
    stages is a part of its own; stages that took more alone than in the loader are scaled down to it.
    """
    energy = measurements.energy
    if energy is None:
        return {}
    parts = dict(energy.parts)
    if not parts and energy.estimated and energy.watts:
        for stage in measurements.stages:
            if stage.cpu_seconds:
                parts[stage.name] = parts.get(stage.name, 0.0) + stage.cpu_seconds * energy.watts
    total = sum(parts.values())
    if not total:
        return {}
    if total > energy.joules:
        return {name: joules * (energy.joules / total) for name, joules in parts.items()}
    rest = energy.joules - total
    return {**parts, REST: rest} if rest > 0.005 * energy.joules else parts
