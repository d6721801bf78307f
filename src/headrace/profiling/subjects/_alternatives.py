# SPDX-License-Identifier: Apache-2.0
"""Other ways to store the same images, for the remedies: as records, and in every format that could hold them."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.building import Writer
from headrace.errors import HeadraceError, MissingExtra
from headrace.measuring import FileRange, encoded_image, some_of
from headrace.planning import Calibration, Cost, Machine, solve
from headrace.profiling._measurements import FormatCost, Mix, Stage
from headrace.profiling.stages._storage import compare
from headrace.profiling.subjects._course import Course
from headrace.profiling.subjects._notebook import Notebook, describe_storage
from headrace.profiling.subjects._settings import Settings
from headrace.records import Dataset
from headrace.sources import Item
from headrace.sources import Source as AnySource
from headrace.transforms import Compiled
from headrace.units import rate_text

# Files that are compared with records of the same: enough that a pass over them is no blink.
COMPARED_FILES = 2048
COMPARED_BYTES = 64 << 20


def add_records(
    course: Course, book: Notebook, source: AnySource, root: str, items: Sequence[Item], settings: Settings
) -> None:
    """Plan the comparison with records: the same bytes, back to back."""

    def records(seconds: float) -> str:
        mean = sum(item.n_bytes for item in items) / len(items)
        chosen = some_of(items, min(COMPARED_FILES, max(16, int(COMPARED_BYTES / max(1.0, mean)))))
        files = [FileRange(f"{root}/{item.key}", 0, item.n_bytes) for item in chosen]
        with _as_records(source, chosen, settings.workdir) as dataset:
            places = [describe_storage(place) for place in (dataset.path, Path(root))]
            if places[0] != places[1]:
                book.notes.append(
                    f"records were read from {places[0]}, files from {places[1]}: give a workdir on the same storage"
                )
            found = book.raw_and_records = compare(files, dataset, workers=settings.cores, seconds=seconds)
        return f"{found.raw_cold:,.0f} files/s cold, {found.records_cold:,.0f} as records"

    course.add("files against records of the same", 2, records, optional=True)


@contextmanager
def _as_records(source: AnySource, items: Sequence[Item], workdir: str | None) -> Iterator[Dataset]:
    """The same bytes as a dataset, for a while."""
    with tempfile.TemporaryDirectory(prefix="headrace-profile-", dir=workdir) as folder:
        place = Path(folder) / "records.hr"
        with Writer(place, fields={"image": "image"}, format="keep", verify=False, on_error="skip") as writer:
            for item in items:
                writer.write({"image": encoded_image(source, item)}, key=item.key)
        yield Dataset(place)


def add_formats(
    course: Course, book: Notebook, source: str | Path, compiled: Compiled, batch_size: int, settings: Settings
) -> None:
    """Plan the measurement of a few images in every format that could hold them."""

    def formats(_: float) -> str:
        from headrace.planning import calibrate  # noqa: PLC0415 - brings the builder

        options = {
            "dtype": compiled.dtype,
            "layout": compiled.layout,
            "color": compiled.color,
            "approximate_jpeg": compiled.approximate_jpeg,
        }
        calibration = calibrate(
            source,
            transform=list(compiled.transforms),
            batch_size=batch_size,
            cores=settings.cores,
            quick=settings.quick or course.left < 60,
            loader_options=options,
            workdir=settings.workdir,
            progress=lambda done, total, what: course.go_on(f"other formats, {done + 1} of {total}: {what}"),
        )
        note_formats(book, calibration, settings)
        return ", ".join(f"{cost.format} {rate_text(1 / cost.cpu_seconds)} per core" for cost in calibration.costs)

    course.add("other formats of the same images", 4, formats, optional=True)


def note_formats(book: Notebook, calibration: Calibration, settings: Settings) -> None:
    """Note what a sample costs in each format, and the best mix of them on this machine."""
    machine = _machine(book, settings)
    step = book.differential.get("step_seconds") or 0.0
    book.calibration = calibration.to_json()
    book.formats = tuple(map(_format_cost, calibration.costs))
    try:
        predicted = solve(calibration, machine, step=step).predicted
    except MissingExtra as error:
        book.notes.append(f"no mix of formats was looked for: {error}")
    except HeadraceError as error:
        book.notes.append(f"no mix of formats was found: {error}")
    else:
        book.mix = Mix(shares=dict(predicted.shares), stored_bytes=predicted.stored_bytes)


def _machine(book: Notebook, settings: Settings) -> Machine:
    return Machine(
        storage_rate=_bandwidth(book.stages) if book.reads_cold else math.inf,
        cores=float(settings.cores),
        trainer_cores=min(book.differential.get("trainer_cores") or 0.0, settings.cores - 0.5),
        emulated=settings.emulation.text is not None,
    )


def _bandwidth(stages: list[Stage]) -> float:
    """Bytes a second that cold reads reached; unlimited if they were not measured."""
    rates = [
        rate.rate * stage.n_bytes
        for stage in stages
        if stage.name == "read" and stage.n_bytes
        for rate in stage.cold_rates
    ]
    return max(rates, default=math.inf)


def _format_cost(cost: Cost) -> FormatCost:
    return FormatCost(
        format=cost.format,
        read_bytes=cost.read_bytes,
        stored_bytes=cost.stored_bytes,
        cpu_seconds=cost.cpu_seconds,
        cpu_seconds_crowded=cost.cpu_seconds_crowded,
        encode_seconds=cost.encode_seconds,
        lossless=cost.lossless,
    )
