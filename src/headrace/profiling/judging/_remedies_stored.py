# SPDX-License-Identifier: Apache-2.0
"""Remedies that store the images in another way: as records, in another format, in a mix of formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.planning import worth_its_size
from headrace.planning.commands import command_line
from headrace.profiling._measurements import FormatCost, Measurements
from headrace.profiling.judging._pipeline import CACHED_SHARE, Load, Pipeline, reads_cold, worker_count
from headrace.profiling.judging._remedy import (
    WORTHWHILE,
    Remedy,
    build_command,
    build_target,
    offer,
    run_options,
    source_path,
    trainer_ceiling,
)
from headrace.units import bytes_text, percent_text, seconds_text

_MOST_OFF = 2.0
"""Measured costs of the loader and of its format are made to agree up to this factor."""


def records(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Put the reading of records in place of opening and reading files, where the format itself was not measured."""
    found = measurements.raw_and_records
    if found is None or measurements.source.kind != "folder" or _own_cost(measurements) is not None:
        return
    changed = now.without(stage="open").without(stage="read")
    if reads_cold(measurements) and found.records_cold:
        changed = changed.plus([Load("read", "storage", 1 / found.records_cold)])
    if found.records_warm:
        changed = changed.plus([Load("read", "cores", 1 / found.records_warm)])
    yield offer(
        "records",
        "read records instead of files",
        changed.rate,
        now=now,
        command=build_command(measurements, "--format", "keep"),
        why="a shard is opened once and holds thousands of images; the stored bytes of each stay as they are",
    )


def formats(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Offer the best format of each place; a larger one only where its speed is worth its size."""
    ceiling = trainer_ceiling(now)
    for place in ("cpu", "device"):
        costs = [cost for cost in measurements.formats if cost.place == place and admissible(cost, measurements)]
        rates = [min(format_rate(cost, measurements, now), ceiling) for cost in costs]
        chosen = worth_its_size([(rate, cost.stored_bytes) for rate, cost in zip(rates, costs, strict=True)])
        if chosen is None:
            continue
        best = costs[chosen]
        # What is stored so already is taken over as it is: a lossy file that is encoded again would lose more.
        kept = not best.lossless or set(measurements.source.formats) == {best.format}
        title = f"keep the images as {best.format}, in records" if kept else f"store the images as {best.format}"
        if place == "device":
            title += ", and decode them on the device"
        yield offer(
            "device" if place == "device" else "format",
            title,
            rates[chosen],
            now=now,
            command=build_command(measurements, "--format", "keep" if kept else best.format),
            code='device="cuda", decode="device"' if place == "device" else "",
            why=f"a sample takes {seconds_text(best.cpu_seconds)} of a core, reads {bytes_text(best.read_bytes)} "
            f"and is stored in {bytes_text(best.stored_bytes)}",
        )


def plan(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Offer the planner's mix where it beats every single format."""
    mix = measurements.mix
    rate = mix_rate(measurements, now)
    if mix is None or rate is None or sum(share > 0 for share in mix.shares.values()) < 2:
        return
    singles = [format_rate(cost, measurements, now) for cost in measurements.formats if admissible(cost, measurements)]
    if rate < WORTHWHILE * max(singles, default=0.0):
        return
    shares = ", ".join(f"{percent_text(share)} {name}" for name, share in mix.shares.items() if share > 0)
    yield offer(
        "plan",
        f"mix formats: {shares}",
        rate,
        now=now,
        command=plan_commands(measurements),
        why="some samples load the storage and others the cores, so that both are busy",
    )


def plan_commands(measurements: Measurements) -> str:
    """Make a plan for this run, and build by it; empty where options do not describe the run."""
    path, target, options = source_path(measurements), build_target(measurements), run_options(measurements)
    if path is None or target is None or options is None:
        return ""
    made = command_line("headrace", "plan", path, options, ("-o", "plan.json"))
    return made + "\n" + command_line("headrace", "build", path, target, ("--plan", "plan.json"))


def format_rate(cost: FormatCost, measurements: Measurements, now: Pipeline) -> float:
    """ImageSample a second from records of one format: its costs in place of those of today's samples."""
    return _rate_with(
        measurements,
        now,
        cpu_seconds=_crowded(cost),
        read_bytes=cost.read_bytes,
        stored_bytes=cost.stored_bytes,
        device_seconds=cost.device_seconds,
    )


def mix_rate(measurements: Measurements, now: Pipeline) -> float | None:
    """ImageSample a second from the planner's mix; None if there is none, or a format of it was not measured."""
    costs = _by_name(measurements)
    if measurements.mix is None or not set(measurements.mix.shares) <= set(costs):
        return None
    parts = [(share, costs[name]) for name, share in measurements.mix.shares.items()]
    return _rate_with(
        measurements,
        now,
        cpu_seconds=sum(share * _crowded(cost) for share, cost in parts),
        read_bytes=sum(share * cost.read_bytes for share, cost in parts),
        stored_bytes=sum(share * cost.stored_bytes for share, cost in parts),
        device_seconds=0.0,
    )


def _rate_with(
    measurements: Measurements,
    now: Pipeline,
    *,
    cpu_seconds: float,
    read_bytes: float,
    stored_bytes: float,
    device_seconds: float,
) -> float:
    changed = _without_samples(measurements, now)
    cores = max(min(worker_count(measurements), measurements.machine.cores), 1)
    loads = [
        Load("decode", "cores", cpu_seconds * _agreement(measurements, now) / cores),
        Load("decode", "trainer", device_seconds),
    ]
    bandwidth = storage_bandwidth(measurements)
    if bandwidth and (reads_cold(measurements) or _outgrows_memory(measurements, stored_bytes)):
        loads.append(Load("read", "storage", read_bytes / bandwidth))
    return changed.plus(loads).rate


def _without_samples(measurements: Measurements, now: Pipeline) -> Pipeline:
    """What stays if samples are made in another way: the step, and what is done to the samples afterwards.

    Of a folder nothing else stays: its files were loaded by a program of threads in Python, and records are by the
    Loader, which takes the calibrated time of the trainer's thread for each sample.
    """
    if measurements.source.kind == "folder":
        taking = (measurements.calibration or {}).get("consumer_seconds", 0.0)
        steps = Pipeline(tuple(load for load in now.loads if load.stage == "step"))
        return steps.plus([Load("batch", "trainer", taking if isinstance(taking, float) else 0.0)])
    made = ("open", "read", "decode", "sample")
    return Pipeline(
        tuple(
            load
            for load in now.loads
            if load.stage not in made and not (load.stage == "transform" and load.place == "cores")
        )
    )


def _agreement(measurements: Measurements, now: Pipeline) -> float:
    """What the loader took of the cores over what its own format was calibrated to take.

    Both are the same loader with the same images. What it took longer in the run (other programs, clocks, the trainer
    beside it) every format will take longer.
    """
    own = None if measurements.source.kind == "folder" else _own_cost(measurements)
    cores = max(min(worker_count(measurements), measurements.machine.cores), 1)
    taken = sum(load.seconds for load in now.loads if load.place == "cores" and load.stage != "step")
    if own is None or not _crowded(own) or not taken or any(load.waits or load.rest for load in now.loads):
        return 1.0
    return min(max(taken * cores / _crowded(own), 1 / _MOST_OFF), _MOST_OFF)


def _own_cost(measurements: Measurements) -> FormatCost | None:
    """The cost of the one format that the images are stored in already."""
    shares = measurements.source.formats
    return _by_name(measurements).get(next(iter(shares))) if len(shares) == 1 else None


def _by_name(measurements: Measurements) -> Mapping[str, FormatCost]:
    return {cost.format: cost for cost in measurements.formats if cost.place == "cpu"}


def _crowded(cost: FormatCost) -> float:
    return cost.cpu_seconds if cost.cpu_seconds_crowded is None else cost.cpu_seconds_crowded


def _outgrows_memory(measurements: Measurements, stored_bytes: float) -> bool:
    """Whether a format is so large that epochs would read from storage, though today's do not."""
    samples, memory = measurements.source.samples, measurements.machine.memory_bytes
    return samples is not None and memory is not None and samples * stored_bytes > CACHED_SHARE * memory


def storage_bandwidth(measurements: Measurements) -> float | None:
    """Bytes a second that cold reads reached."""
    for stage in measurements.stages:
        if stage.name == "read" and stage.n_bytes and stage.cold_rates:
            return stage.n_bytes * max(point.rate for point in stage.cold_rates) or None
    return None


def admissible(cost: FormatCost, measurements: Measurements) -> bool:
    """Leave out what the dataset is already, and formats that would lose what the images still have."""
    shares = measurements.source.formats
    if measurements.source.kind != "folder" and set(shares) == {cost.format} and cost.place == "cpu":
        return False
    return cost.lossless or cost.format in shares
