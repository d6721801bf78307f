# SPDX-License-Identifier: Apache-2.0
"""Profiles that nobody measured: figures made up so that one knows what the verdict must be."""

from __future__ import annotations

from dataclasses import replace

from headrace.profiling import (
    Differential,
    Energy,
    FormatCost,
    FormatMix,
    MachineFacts,
    Measurements,
    Memory,
    ProfiledSource,
    Rate,
    RawAndRecords,
    RecipeSummary,
    Stage,
)

CORES = 8
EVEN = 1000.0
"""Images per second of every place of `even`."""


def curve(rate: float, *, cores: int = CORES, efficiency: float = 1.0) -> tuple[Rate, ...]:
    """Rates from one core to all, of which the last is `rate` and the first `efficiency` less than its share."""
    points = [n for n in (1, 2, 4, 8, 16) if n <= cores]
    return tuple(Rate(cores=n, rate=rate * (n / cores) ** efficiency) for n in points)


def stages(**rates: float) -> tuple[Stage, ...]:
    """All stages, each at its rate: three that share the cores, and others in places of their own."""
    return (
        Stage(name="open", cold_rates=curve(rates["open"])),
        Stage(name="read", cold_rates=curve(rates["read"]), n_bytes=1e6),
        Stage(name="decode", rates=curve(rates["decode"]), cpu_seconds=CORES / rates["decode"], detail="png"),
        Stage(name="transform", rates=curve(rates["transform"]), cpu_seconds=CORES / rates["transform"]),
        Stage(name="batch", place="thread", rates=(Rate(cores=1, rate=rates["batch"]),), detail="collate_fn"),
        Stage(name="transfer", place="link", rates=(Rate(cores=1, rate=rates["transfer"]),)),
    )


STAGE_NAMES = ("open", "read", "decode", "transform", "batch", "transfer")


def even(trainer: float | None = EVEN, **changes: float) -> Measurements:
    """Every stage four times as fast as a trainer of 1000 images/s needs; `changes` are rates of stages."""
    rates = {**dict.fromkeys(STAGE_NAMES, 4 * EVEN), **changes}
    return Measurements(
        machine=MachineFacts(cores=CORES),
        source=ProfiledSource(kind="folder", name="photos"),
        stages=stages(**rates),
        differential=None if trainer is None else Differential(trainer=trainer),
        reads_cold=True,
    )


def foreign(**found: float | None) -> Measurements:
    """A loader of which only the three rates and how busy it was are known."""
    return Measurements(
        machine=MachineFacts(cores=CORES),
        source=ProfiledSource(kind="loader", name="torch.utils.data.DataLoader"),
        recipe=RecipeSummary(workers=CORES),
        differential=Differential(**{"trainer": 1000.0, "loader": 300.0, "together": 280.0, **found}),
    )


def full(name: str = "/data/drives/2024-munich/images") -> Measurements:
    """All that a profile can hold, with figures of the size that a small server has."""
    return Measurements(
        machine=MachineFacts(
            cores=8,
            processor="AMD EPYC 7543",
            memory_bytes=64_000_000_000,
            storage="NVMe, ext4",
            accelerator="NVIDIA A100 80GB",
            system="Linux 6.8",
        ),
        source=ProfiledSource(
            kind="folder",
            name=name,
            samples=48_112,
            n_bytes=109_214_000_000,
            image_bytes=2.27e6,
            pixel_bytes=6.3e6,
            formats={"png": 0.93, "jpeg": 0.07},
        ),
        recipe=RecipeSummary(
            batch_size=64,
            workers=8,
            transforms=("random_resized_crop 512 x 512", "horizontal_flip", "normalize"),
        ),
        stages=(
            Stage(name="open", rates=curve(41_000, efficiency=0.8), cold_rates=curve(5_900), cpu_seconds=2.4e-5),
            Stage(
                name="read",
                rates=curve(5_300, efficiency=0.7),
                cold_rates=curve(1_120, efficiency=0.35),
                cpu_seconds=7e-4,
                n_bytes=2.27e6,
            ),
            Stage(name="decode", rates=curve(148, efficiency=0.93), cpu_seconds=0.047, n_bytes=6.3e6, detail="png"),
            Stage(name="transform", rates=curve(1_460, efficiency=0.97), cpu_seconds=0.0052, n_bytes=3.1e6),
            Stage(name="batch", place="thread", rates=(Rate(cores=1, rate=9_400),), cpu_seconds=1e-4, n_bytes=3.1e6),
            Stage(name="transfer", place="link", rates=(Rate(cores=1, rate=3_900),), n_bytes=3.1e6),
        ),
        differential=Differential(
            trainer=366.0,
            loader=131.0,
            together=128.0,
            step_seconds=0.175,
            trainer_cores=0.6,
            loader_cores=7.8,
            thread_busy=0.04,
            batches=60,
        ),
        raw_and_records=RawAndRecords(
            images=4_096, raw_cold=940, raw_warm=4_690, records_cold=1_310, records_warm=11_800
        ),
        formats=(
            FormatCost(format="png", read_bytes=2.27e6, stored_bytes=2.27e6, cpu_seconds=0.052, encode_seconds=0.21),
            FormatCost(
                format="hri:dense",
                read_bytes=1.5e6,
                stored_bytes=1.98e6,
                cpu_seconds=0.0171,
                encode_seconds=0.11,
            ),
            FormatCost(
                format="hri:fast",
                read_bytes=1.9e6,
                stored_bytes=2.5e6,
                cpu_seconds=0.0094,
                encode_seconds=0.05,
            ),
            FormatCost(
                format="hri:fast",
                place="device",
                read_bytes=2.5e6,
                stored_bytes=2.5e6,
                cpu_seconds=0.0011,
                device_seconds=0.0002,
            ),
            FormatCost(format="raw", read_bytes=4.8e6, stored_bytes=6.3e6, cpu_seconds=0.0061, encode_seconds=0.004),
        ),
        mix=FormatMix(shares={"hri:fast": 0.72, "hri:dense": 0.28}, stored_bytes=1.13e11),
        memory=Memory(peak_bytes=3_910_000_000),
        energy=Energy(
            joules=0.377,
            estimated=True,
            meter="cpu time",
            watts=7.0,
        ),
        seconds=312.4,
        started="2026-11-16T04:00:00Z",
        headrace="0.1.0",
        notes=(
            "Cold reads: the page cache was dropped file by file before each pass.",
            "No energy counter could be read; joules are CPU time at 7 W per busy core.",
        ),
    )


def crowded() -> Measurements:
    """A large machine with small images: long names, long numbers, and many of all."""
    counts = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96)
    whole = full("/mnt/a/very/long/path/that/goes/on/and/on/to/a/folder/of/thumbnails/" + 20 * "deeper/")
    names = [
        f"{name}:{mode}" for name in ("hri", "webp", "experimental-format") for mode in ("fast", "dense", "x" * 30)
    ]
    return replace(
        whole,
        machine=replace(whole.machine, cores=96),
        recipe=replace(whole.recipe, workers=96, transforms=30 * ("random_resized_crop 32 x 32",)),
        stages=(
            *(
                replace(stage, rates=tuple(Rate(cores=n, rate=1e5 * n**0.9) for n in counts), cold_rates=())
                for stage in whole.stages[:4]
            ),
            Stage(name="sample", rates=tuple(Rate(cores=n, rate=9e4 * n**0.5) for n in counts), cpu_seconds=1e-5),
            *whole.stages[4:],
        ),
        differential=replace(whole.differential, trainer=1_234_567.0, loader=None, together=None),
        formats=tuple(
            FormatCost(format=name, read_bytes=10**n, stored_bytes=10**n, cpu_seconds=10.0**-n)
            for n, name in enumerate(names)
        ),
        mix=FormatMix(shares=dict.fromkeys(names, 1 / len(names))),
    )


def lonely() -> Measurements:
    """A machine of one core, where every curve is a point."""
    whole = full("x")
    stages = tuple(replace(stage, rates=stage.rates[:1], cold_rates=stage.cold_rates[:1]) for stage in whole.stages)
    return replace(whole, machine=MachineFacts(cores=1), recipe=RecipeSummary(workers=1), stages=stages)


def partial() -> Measurements:
    """What is left of a run that was interrupted after the first stage."""
    whole = full()
    return replace(
        Measurements(machine=whole.machine, source=whole.source),
        stages=(Stage(name="decode", rates=(Rate(cores=1, rate=21.0),), cpu_seconds=0.047),),
        complete=False,
        interrupted=True,
        missing=("transform, one core to all", "batch"),
    )
