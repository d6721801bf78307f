# SPDX-License-Identifier: Apache-2.0
"""The phases that store some of the images in other ways, for the remedies: as records, and in other formats."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from headrace.building import Writer
from headrace.errors import HeadraceError, MissingExtra
from headrace.measuring import FileRange, encoded_image, some_of
from headrace.planning import Calibration, Machine, solve
from headrace.profiling._measurements import FormatCost, FormatMix, Measurements
from headrace.profiling.judging._remedies_stored import storage_bandwidth
from headrace.profiling.stages._storage import compare_with_records
from headrace.profiling.subjects._schedule import Findings, Phase, Schedule
from headrace.profiling.subjects._settings import Settings, describe_storage
from headrace.records import Dataset
from headrace.sources import Item, Source
from headrace.transforms import Compiled
from headrace.units import rate_text

MAX_COMPARED_FILES, MAX_COMPARED_BYTES = 2048, 64 << 20


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
        from headrace.planning import calibrate  # noqa: PLC0415 - imports the builder

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
        return found.add(", ".join(costs), **add_costs(calibration, found.measurements, settings))

    return Phase("other formats of the same images", 4, formats, "optional")


def add_costs(calibration: Calibration, found: Measurements, settings: Settings) -> dict[str, Any]:
    """Return the fields of the measurements that follow from a calibration: costs, and the best mix of formats."""
    names = [field.name for field in fields(FormatCost)]
    costs = [{name: getattr(cost, name) for name in names if hasattr(cost, name)} for cost in calibration.costs]
    changes = {"calibration": calibration.to_json(), "formats": tuple(FormatCost(**cost) for cost in costs)}
    trainer = found.differential
    machine = Machine(
        storage_rate=(storage_bandwidth(found) if found.reads_cold else None) or math.inf,
        cores=float(settings.cores),
        trainer_cores=min((trainer.trainer_cores if trainer else None) or 0.0, settings.cores - 0.5),
        emulated=settings.emulation.text is not None,
    )
    try:
        predicted = solve(calibration, machine, step=(trainer.step_seconds if trainer else None) or 0.0).predicted
    except MissingExtra as error:
        return changes | {"notes": [f"no mix of formats was computed: {error}"]}
    except HeadraceError as error:
        return changes | {"notes": [f"no mix of formats was found: {error}"]}
    return changes | {"mix": FormatMix(shares=dict(predicted.shares), stored_bytes=predicted.stored_bytes)}
