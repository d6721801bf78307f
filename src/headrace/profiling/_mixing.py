# SPDX-License-Identifier: Apache-2.0
"""Other formats of the same images, as the planner measures and predicts them: for the remedies."""

from __future__ import annotations

import math
from pathlib import Path

from headrace.errors import HeadraceError, MissingExtra
from headrace.planning import Calibration, Cost, Machine, plan, predict
from headrace.profiling._course import Course
from headrace.profiling._measurements import FormatCost, Mix, Stage
from headrace.profiling._notebook import Notebook
from headrace.profiling._settings import Settings
from headrace.transforms import Compiled


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
        return ", ".join(f"{cost.format} {1 / cost.cpu_seconds:,.0f} images/s a core" for cost in calibration.costs)

    course.add("other formats of the same images", 4, formats, optional=True)


def note_formats(book: Notebook, calibration: Calibration, settings: Settings) -> None:
    """Note what each format would give on this machine, and the best mix of them."""
    machine = _machine(book, settings)
    step = book.differential.get("step_seconds") or 0.0
    book.calibration = calibration.to_json()
    book.formats = tuple(
        _format_cost(cost, predict(calibration, machine, cost.format, step=step).rate) for cost in calibration.costs
    )
    try:
        predicted = plan(calibration, machine, step=step).predicted
    except MissingExtra as error:
        book.notes.append(f"no mix of formats was looked for: {error}")
    except HeadraceError as error:
        book.notes.append(f"no mix of formats was found: {error}")
    else:
        book.mix = Mix(shares=dict(predicted.shares), rate=predicted.rate, stored_bytes=predicted.stored_bytes)


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


def _format_cost(cost: Cost, rate: float) -> FormatCost:
    return FormatCost(
        format=cost.format,
        place=cost.place,
        read_bytes=cost.read_bytes,
        stored_bytes=cost.stored_bytes,
        cpu_seconds=cost.cpu_seconds,
        cpu_seconds_crowded=cost.cpu_seconds_crowded,
        link_bytes=cost.link_bytes,
        device_seconds=cost.device_seconds,
        encode_seconds=cost.encode_seconds,
        lossless=cost.lossless,
        rate=rate if math.isfinite(rate) else None,
    )
