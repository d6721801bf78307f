# SPDX-License-Identifier: Apache-2.0
"""Remedies that store the images in another way: as records, in another format, in a mix of formats."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headrace.planning import Cost, Machine, worth_its_size
from headrace.planning.commands import command_line
from headrace.profiling._measurements import CACHED_SHARE, FormatCost, Measurements
from headrace.profiling.judging._model import Load, RunModel
from headrace.profiling.judging._reconcile import model_run
from headrace.profiling.judging._remedy import (
    MIN_GAIN,
    Remedy,
    build_command,
    make_remedy,
    run_options,
    source_path,
)
from headrace.units import bytes_text, percent_text, seconds_text

_MAX_CORRECTION = 2.0
"""Calibrated costs are corrected to the measured loader by at most this factor."""


def records(measurements: Measurements, now: RunModel) -> Iterator[Remedy]:
    """Replace open and read of files by the measured rate of records, if the format itself was not calibrated."""
    found = measurements.raw_and_records
    if found is None or measurements.source.kind != "folder" or _own_cost(measurements) is not None:
        return
    changed = now.without("open").without("read")
    if measurements.reads_from_storage and found.records_cold:
        changed = changed.plus([Load("read", "storage", 1 / found.records_cold)])
    if found.records_warm:
        changed = changed.plus([Load("read", "cores", 1 / found.records_warm)])
    yield make_remedy(
        "records",
        "read records instead of files",
        changed.rate,
        now=now,
        command=build_command(measurements, "--format", "keep"),
        why="a shard is opened once and holds thousands of images; their stored bytes do not change",
    )


def other_formats(measurements: Measurements, now: RunModel) -> Iterator[Remedy]:
    """Offer the best format; a larger one only if its speed is worth its size."""
    costs = [cost for cost in measurements.formats if _is_allowed(cost, measurements)]
    rates = [min(format_rate(cost, measurements, now), now.trainer_ceiling) for cost in costs]
    chosen = worth_its_size([(rate, cost.stored_bytes) for rate, cost in zip(rates, costs, strict=True)])
    if chosen is None:
        return
    best = costs[chosen]
    # Images already in this format are copied: encoding a lossy image again would lose more.
    kept = not best.lossless or set(measurements.source.formats) == {best.format}
    yield make_remedy(
        "format",
        f"keep the images as {best.format}, in records" if kept else f"store the images as {best.format}",
        rates[chosen],
        now=now,
        command=build_command(measurements, "--format", "keep" if kept else best.format),
        why=f"a sample takes {seconds_text(best.cpu_seconds)} of a core, reads {bytes_text(best.read_bytes)} "
        f"and is stored in {bytes_text(best.stored_bytes)}",
    )


def mix_of_formats(measurements: Measurements, now: RunModel) -> Iterator[Remedy]:
    """Offer the planner's mix if it is faster than every single format."""
    mix, rate = measurements.mix, mix_rate(measurements, now)
    if mix is None or rate is None or sum(share > 0 for share in mix.shares.values()) < 2:
        return
    allowed = (cost for cost in measurements.formats if _is_allowed(cost, measurements))
    if rate < MIN_GAIN * max((format_rate(cost, measurements, now) for cost in allowed), default=0.0):
        return
    shares = ", ".join(f"{percent_text(share)} {name}" for name, share in mix.shares.items() if share > 0)
    yield make_remedy(
        "plan",
        f"mix formats: {shares}",
        rate,
        now=now,
        command=_plan_commands(measurements),
        why="some samples need more storage and others more CPU time, so that both are busy",
    )


def _plan_commands(measurements: Measurements) -> str:
    """Return the commands that plan and build for this run; empty if no options describe the run."""
    path, options = source_path(measurements), run_options(measurements)
    if path is None or options is None:
        return ""
    plan = command_line("headrace", "plan", path, options, ("-o", "plan.json"))
    return plan + "\n" + build_command(measurements, "--plan", "plan.json")


def rated_formats(measurements: Measurements) -> list[tuple[FormatCost, float]]:
    """Return each format with the predicted rate of training from it, the fastest first."""
    now = model_run(measurements)
    rated = [(cost, min(format_rate(cost, measurements, now), now.trainer_ceiling)) for cost in measurements.formats]
    return sorted(rated, key=lambda pair: -pair[1])


def format_rate(cost: FormatCost, measurements: Measurements, now: RunModel) -> float:
    """Predict the rate of training from records of one format; may exceed the trainer's ceiling."""
    return _rate_with([(1.0, cost)], measurements, now)


def mix_rate(measurements: Measurements, now: RunModel) -> float | None:
    """Predict the rate of training from the planner's mix; None without a mix or the cost of one of its formats."""
    costs = {cost.format: cost for cost in measurements.formats if cost.place == "cpu"}
    if measurements.mix is None or not set(measurements.mix.shares) <= set(costs):
        return None
    return _rate_with([(share, costs[name]) for name, share in measurements.mix.shares.items()], measurements, now)


def _rate_with(parts: list[tuple[float, FormatCost]], measurements: Measurements, now: RunModel) -> float:
    """Replace the costs of today's samples by a weighted mean of costs."""
    cost = Cost.mean(parts)
    cpu_seconds = _cpu_seconds(cost, measurements) * _correction(measurements, now)
    loads = [
        Load("decode", "cores", cpu_seconds / measurements.used_cores),
        Load("decode", "trainer", sum(share * each.device_seconds for share, each in parts)),
    ]
    bandwidth = storage_bandwidth(measurements)
    if bandwidth and (measurements.reads_from_storage or _outgrows_memory(measurements, cost.stored_bytes)):
        loads.append(Load("read", "storage", cost.read_bytes / bandwidth))
    return _without_samples(measurements, now).plus(loads).rate


def _without_samples(measurements: Measurements, now: RunModel) -> RunModel:
    """Return what remains if samples are made in another way: the step, and what happens to samples afterwards.

    For a folder only the step remains: its files were loaded by Python threads, and records are by the Loader, which
    needs the calibrated time of the trainer's thread for each sample.
    """
    if measurements.source.kind == "folder":
        seconds = (measurements.calibration or {}).get("consumer_seconds", 0.0)
        steps = now.only(lambda load: load.stage == "step")
        return steps.plus([Load("batch", "trainer", seconds if isinstance(seconds, float) else 0.0)])
    replaced = ("open", "read", "decode", "sample")
    return now.without("transform", "cores").only(lambda load: load.stage not in replaced)


def _correction(measurements: Measurements, now: RunModel) -> float:
    """Return the loader's measured core time over the calibrated core time of its own format.

    Both are the same loader with the same images, so whatever made the run slower (other programs, clock rates, the
    trainer on the same cores) makes every format slower.
    """
    own = None if measurements.source.kind == "folder" else _own_cost(measurements)
    measured = sum(load.seconds for load in now.loads if load.place == "cores" and load.stage != "step")
    calibrated = 0.0 if own is None else _cpu_seconds(own, measurements)
    if not calibrated or not measured or any(load.waits or load.inferred for load in now.loads):
        return 1.0
    return min(max(measured * measurements.used_cores / calibrated, 1 / _MAX_CORRECTION), _MAX_CORRECTION)


def _own_cost(measurements: Measurements) -> FormatCost | None:
    """Return the cost of the format in which all images are stored today."""
    shares = measurements.source.formats
    if len(shares) != 1:
        return None
    return next((cost for cost in measurements.formats if cost.place == "cpu" and cost.format in shares), None)


def _cpu_seconds(cost: Cost, measurements: Measurements) -> float:
    return cost.cpu_at(measurements.used_cores, measurements.machine.cores)


def _outgrows_memory(measurements: Measurements, stored_bytes: float) -> bool:
    """Whether a format is so large that epochs would read from storage, even if today's do not."""
    samples, memory = measurements.source.samples, measurements.machine.memory_bytes
    return samples is not None and memory is not None and samples * stored_bytes > CACHED_SHARE * memory


def storage_bandwidth(measurements: Measurements) -> float | None:
    """Return the bytes per second that cold reads reached."""
    for stage in measurements.stages:
        if stage.name == "read" and stage.n_bytes and stage.cold_rates:
            return stage.n_bytes * max(point.rate for point in stage.cold_rates) or None
    return None


def run_machine(measurements: Measurements) -> Machine:
    """Return the capacities that the run has. Storage has no limit if epochs read from memory, or if it is unknown."""
    found, facts = measurements.differential, measurements.machine
    busy = 0.0 if found is None or found.stated else found.trainer_cores or 0.0
    bandwidth = storage_bandwidth(measurements) if measurements.reads_from_storage else None
    return Machine(
        storage_rate=bandwidth or math.inf,
        cores=facts.cores,
        trainer_cores=min(busy, facts.cores - 0.5),
        emulated=facts.emulated is not None,
    )


def _is_allowed(cost: FormatCost, measurements: Measurements) -> bool:
    """Exclude the format that the dataset has already, and formats that would lose information."""
    shares = measurements.source.formats
    is_own = measurements.source.kind != "folder" and set(shares) == {cost.format}
    return cost.place == "cpu" and not is_own and (cost.lossless or cost.format in shares)
