# SPDX-License-Identifier: Apache-2.0
"""Phases that several kinds of subjects share: loader and trainer; the images as records and in other formats."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headrace.building import Writer
from headrace.errors import HeadraceError, MissingExtra
from headrace.measuring import EnergyCounter, FileRange, encoded_image, some_of
from headrace.planning import Calibration, calibrate, solve
from headrace.profiling._measurements import Energy, FormatCost, FormatMix, Measurements, Memory, Rate, Stage
from headrace.profiling.judging._remedies_stored import run_machine
from headrace.profiling.stages._clocks import ClockedRun, core_stages
from headrace.profiling.stages._runs import TimedRun, run_loader, run_trainer
from headrace.profiling.stages._storage import compare_with_records
from headrace.profiling.subjects._schedule import Findings, OutOfTime, Phase, Schedule
from headrace.profiling.subjects._settings import Settings, describe_storage
from headrace.records import Dataset
from headrace.sources import Item, Source
from headrace.transforms import Compiled
from headrace.units import rate_text

MAX_COMPARED_FILES, MAX_COMPARED_BYTES = 2048, 64 << 20


def training_phases(
    loader: Iterable[Any],
    settings: Settings,
    schedule: Schedule,
    *,
    thread_stages: Callable[[], list[Stage]] = list,
) -> list[Phase]:
    """Measure the loader alone, the trainer alone, and both together.

    `thread_stages` returns what the loader's own clocks say about stages of single threads.
    """

    def loader_alone(found: Findings, seconds: float) -> Findings:
        counter = EnergyCounter()
        run = run_loader(loader, seconds=seconds)
        recipe, peak = found.measurements.recipe, run.cost.peak_bytes
        return found.add(
            _summary(run.rate),
            stages=thread_stages(),
            loader_run=run,
            differential={
                "loader": run.rate,
                "loader_spread": run.spread,
                "loader_cores": run.cores,
                "thread_busy": min(1.0, run.thread_seconds / run.seconds) if run.seconds > 0 else None,
                "batches": run.batches,
            },
            recipe=recipe if recipe.batch_size else replace(recipe, batch_size=run.batch_images),
            memory=None if peak is None else Memory(peak_bytes=peak),
            energy=_energy(run, counter, settings.watts),
        )

    def trainer_alone(found: Findings, seconds: float) -> Findings:
        assert settings.step is not None
        assert found.loader_run is not None
        batch, images = found.loader_run.batch, found.loader_run.batch_images
        if settings.stated_step is not None:
            rate = max(images, found.measurements.recipe.batch_size or 0) / settings.stated_step
            stated = {"trainer": rate, "stated": True, "step_seconds": settings.stated_step}
            return found.add(_summary(rate), differential=stated)
        run = run_trainer(settings.step, batch, images, seconds=seconds)
        measured = {
            "trainer": run.rate,
            "trainer_spread": run.spread,
            "step_seconds": images / run.rate if run.rate else None,
            "trainer_cores": run.cores,
        }
        return found.add(_summary(run.rate), differential=measured)

    def both_together(found: Findings, seconds: float) -> Findings:
        alone = found.loader_run
        assert alone is not None
        if schedule.spent + 2 * alone.seconds / max(1, alone.batches) > schedule.latest:
            raise OutOfTime
        run = run_loader(loader, seconds=seconds, step=settings.step)
        return found.add(_summary(run.rate), differential={"together": run.rate, "together_spread": run.spread})

    phases = [Phase("loader alone", 3, loader_alone, "essential")]
    if settings.step is not None:
        phases.append(Phase("trainer alone", 0.1 if settings.stated_step else 1.5, trainer_alone, "essential"))
        phases.append(Phase("both together", 3, both_together, "useful"))
    return phases


def core_phase(run: Callable[[int, float], ClockedRun], cores: Sequence[int], workers: int) -> Phase:
    """Measure the stages that the workers share, with samples in memory, and with one worker to all.

    `run` takes a number of workers and the seconds; `workers` are those of the loader.
    """
    counts = sorted({*cores, workers})

    def measure(found: Findings, seconds: float) -> Findings:
        runs = {n: run(n, seconds / len(counts)) for n in counts}
        stages = core_stages(runs)
        lines = [f"{stage.name} {rate_text(stage.rates[-1].rate)}" for stage in stages]
        warm = {"warm_loader": runs[workers].run.rate} if found.measurements.reads_cold else None
        return found.add(", ".join(lines), stages=stages, differential=warm)

    return Phase("decode and transform, one core to all", 3, measure)


def storage_phase(
    measure: Callable[[float], tuple[tuple[Rate, ...], Sequence[str]]],
    n_bytes: Callable[[], float],
    limit: float | None,
) -> Phase:
    """Measure cold reads: add their rates to the stage `read`.

    `measure` takes the seconds, and returns rates and notes. A sample needs `n_bytes`; `limit` is the emulated storage
    rate in bytes per second.
    """

    def read(found: Findings, seconds: float) -> Findings:
        rates, notes = measure(seconds)
        wanted = n_bytes()
        if limit is not None:
            rates = tuple(replace(each, rate=min(each.rate, limit / wanted)) for each in rates)
        stages = found.measurements.stages
        warm = next((stage for stage in stages if stage.name == "read"), Stage(name="read"))
        others = tuple(stage for stage in stages if stage is not warm)
        rest = replace(found, measurements=replace(found.measurements, stages=others))
        summary = f"{rate_text(rates[-1].rate)} from storage" if rates else None
        return rest.add(summary, stages=[replace(warm, cold_rates=rates, n_bytes=wanted)], notes=notes)

    return Phase("read, from storage", 1.5, read)


def _energy(run: TimedRun, counter: EnergyCounter, watts: float) -> Energy:
    """Return the energy per image from a counter, or estimated from the CPU time."""
    if counter.source is not None:
        return Energy(joules=counter.joules() / max(1, run.total_images), estimated=False, meter=counter.source)
    return Energy(joules=run.cpu_seconds_per_image * watts, estimated=True, meter="cpu time", watts=watts)


def _summary(rate: float | None) -> str:
    return "too short to measure" if rate is None else rate_text(rate)


def records_phase(source: Source, root: str, items: Sequence[Item], settings: Settings) -> Phase:
    """Compare files with records that hold the same bytes."""

    def records(found: Findings, seconds: float) -> Findings:
        mean = sum(item.n_bytes for item in items) / len(items)
        chosen = some_of(items, min(MAX_COMPARED_FILES, max(16, int(MAX_COMPARED_BYTES / max(1.0, mean)))))
        files = [FileRange(f"{root}/{item.key}", 0, item.n_bytes) for item in chosen]
        with _as_records(source, chosen, settings.workdir) as dataset:
            ours, theirs = (describe_storage(path) for path in (dataset.path, Path(root)))
            pair = compare_with_records(files, dataset, workers=settings.cores, seconds=seconds)
        notes = [f"records were read from {ours}, files from {theirs}: set workdir to a folder on the same storage"]
        return found.add(
            f"{pair.raw_cold:,.0f} files/s cold, {pair.records_cold:,.0f} as records",
            raw_and_records=pair,
            notes=notes if ours != theirs else [],
        )

    return Phase("files compared with records", 2, records, "optional")


@contextmanager
def _as_records(source: Source, items: Sequence[Item], workdir: str | None) -> Iterator[Dataset]:
    """Make a temporary dataset of the same bytes."""
    with tempfile.TemporaryDirectory(prefix="headrace-profile-", dir=workdir) as folder:
        path = Path(folder) / "records.hr"
        with Writer(path, fields={"image": "image"}, format="keep", verify=False, on_error="skip") as writer:
            for item in items:
                writer.write({"image": encoded_image(source, item)}, key=item.key)
        yield Dataset(path)


def formats_phase(
    source: str | Path, compiled: Compiled, batch_size: int, settings: Settings, schedule: Schedule
) -> Phase:
    """Calibrate some of the images in every format that can hold them."""

    def formats(found: Findings, _: float) -> Findings:
        names = ("dtype", "layout", "color", "approximate_jpeg")
        calibration = calibrate(
            source,
            transform=list(compiled.transforms),
            batch_size=batch_size,
            cores=settings.cores,
            quick=settings.quick or schedule.left < 60,
            loader_options={name: getattr(compiled, name) for name in names},
            workdir=settings.workdir,
            progress=lambda done, total, what: schedule.update(f"other formats, {done + 1} of {total}: {what}"),
        )
        costs = [f"{cost.format} {rate_text(1 / cost.cpu_seconds)} per core" for cost in calibration.costs]
        return found.add(", ".join(costs), **add_costs(calibration, found.measurements))

    return Phase("other formats of the same images", 4, formats, "optional")


def add_costs(calibration: Calibration, found: Measurements) -> dict[str, Any]:
    """Return the fields of the measurements that follow from a calibration: costs, and the best mix of formats."""
    costs = tuple(FormatCost(**asdict(cost)) for cost in calibration.costs)
    changes = {"calibration": calibration.to_json(), "formats": costs}
    try:
        step = (found.differential.step_seconds if found.differential else None) or 0.0
        predicted = solve(calibration, run_machine(found), step=step).predicted
    except MissingExtra as error:
        return changes | {"notes": [f"no mix of formats was computed: {error}"]}
    except HeadraceError as error:
        return changes | {"notes": [f"no mix of formats was found: {error}"]}
    return changes | {"mix": FormatMix(shares=dict(predicted.shares), stored_bytes=predicted.stored_bytes)}
