# SPDX-License-Identifier: Apache-2.0
"""Remedies that store the images in another way: as records, in another format, in a mix of formats."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.profiling._figures import bytes_text, percent_text, seconds_text
from headrace.profiling._measurements import FormatCost, Measurements
from headrace.profiling.judging._pipeline import Load, Pipeline, reads_cold, worker_count
from headrace.profiling.judging._remedy import (
    WORTHWHILE,
    Remedy,
    build_command,
    offer,
    source_word,
)


def records(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Put the reading of records in place of opening and reading files."""
    found = measurements.raw_and_records
    if found is None or measurements.source.kind != "folder":
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
        command=build_command(measurements, "--format keep"),
        why="a shard is opened once and holds thousands of images; the stored bytes of each stay as they are",
    )


def formats(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Offer the best format of each place, of equally fast ones the smallest; the report's table has them all."""
    ceiling = min((load.ceiling for load in now.loads if load.stage == "step"), default=float("inf"))

    def merit(cost: FormatCost) -> tuple[float, float]:
        return min(format_rate(cost, measurements, now), ceiling), -cost.stored_bytes

    for place in ("cpu", "device"):
        costs = [cost for cost in measurements.formats if cost.place == place and _admissible(cost, measurements)]
        best = max(costs, key=merit, default=None)
        if best is None:
            continue
        # What is stored so already is taken over as it is: a lossy file that is encoded again would lose more.
        kept = not best.lossless or set(measurements.source.formats) == {best.format}
        title = f"keep the images as {best.format}, in records" if kept else f"store the images as {best.format}"
        command = build_command(measurements, f"--format {'keep' if kept else best.format}")
        if place == "device":
            title += ", and decode them on the device"
            command += '\nheadrace.Loader(…, device="cuda", decode="device")'
        yield offer(
            "device" if place == "device" else "format",
            title,
            format_rate(best, measurements, now),
            now=now,
            command=command,
            why=f"a sample takes {seconds_text(best.cpu_seconds)} of a core and reads {bytes_text(best.read_bytes)}",
        )


def plan(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Offer the planner's mix where it beats every single format."""
    mix = measurements.mix
    if mix is None or sum(share > 0 for share in mix.shares.values()) < 2:
        return
    singles = [format_rate(cost, measurements, now) for cost in measurements.formats if _admissible(cost, measurements)]
    if mix.rate < WORTHWHILE * max(singles, default=0.0):
        return
    shares = ", ".join(f"{percent_text(share)} {name}" for name, share in mix.shares.items() if share > 0)
    yield offer(
        "plan",
        f"mix formats: {shares}",
        mix.rate,
        now=now,
        command=f"headrace plan {source_word(measurements)} -o plan.json\n"
        f"{build_command(measurements, '--plan plan.json')}",
        why="each format loads another place; mixed so, storage, cores and trainer finish together",
    )


def format_rate(cost: FormatCost, measurements: Measurements, now: Pipeline) -> float:
    """Images a second from records of one format: the planner's word, or the sum of its costs."""
    if cost.rate is not None:
        return cost.rate
    changed = now
    for stage in ("open", "read", "decode", "transform", "sample"):
        changed = changed.without(stage=stage)
    seconds = cost.cpu_seconds if cost.cpu_seconds_crowded is None else cost.cpu_seconds_crowded
    cores = max(min(worker_count(measurements), measurements.machine.cores), 1)
    loads = [Load("decode", "cores", seconds / cores), Load("decode", "trainer", cost.device_seconds)]
    bandwidth = storage_bandwidth(measurements)
    if bandwidth and reads_cold(measurements):
        loads.append(Load("read", "storage", cost.read_bytes / bandwidth))
    return changed.plus(loads).rate


def storage_bandwidth(measurements: Measurements) -> float | None:
    """Bytes a second that cold reads reached."""
    for stage in measurements.stages:
        if stage.name == "read" and stage.n_bytes and stage.cold_rates:
            return stage.n_bytes * max(point.rate for point in stage.cold_rates)
    return None


def _admissible(cost: FormatCost, measurements: Measurements) -> bool:
    """Leave out what the dataset is already, and formats that would lose what the images still have."""
    shares = measurements.source.formats
    if measurements.source.kind != "folder" and set(shares) == {cost.format} and cost.place == "cpu":
        return False
    return cost.lossless or cost.format in shares
