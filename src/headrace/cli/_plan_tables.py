# SPDX-License-Identifier: Apache-2.0
"""How plans and what-ifs look in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.units import bytes_per_second_text, bytes_text

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.planning import Plan, Point, Prediction, WhatIf
    from headrace.planning._calibrate import ProgressHook

_MOST_BEST = 12


def plan_table(found: Plan) -> Table:
    """Every single format beside the mix: what is predicted, what binds, and what it takes to have it."""
    count = found.calibration.images
    table = _table(f"{count:,} image{'' if count == 1 else 's'}, {_machine(found)}")
    table.add_column("format", min_width=_longest_name(single.shares for single in found.singles))
    for name in ("images/s", "without\nthe trainer", "limited by", "on disk", "to build"):
        table.add_column(name, justify="left" if name == "limited by" else "right", no_wrap=name != "limited by")
    for single in found.singles:
        over = found.disk_budget is not None and single.stored_bytes > found.disk_budget * (1 + 1e-9)
        table.add_row(next(iter(single.shares)), *_cells(single, over=over), style="dim" if over else None)
    if len(found.shares) > 1:
        table.add_section()
        table.add_row(mix_text(found), *_cells(found.predicted, over=False), style="bold")
    return table


def mix_text(found: Plan) -> str:
    parts = [
        f"{each.share:.0%} {each.format}" + (" (device)" if each.decode == "device" else "") for each in found.shares
    ]
    return " + ".join(parts) if len(parts) > 1 else found.shares[0].format


def plan_sentence(found: Plan) -> str:
    """What the plan is, in a line."""
    single = found.best_single
    limit = f"limited by {' and '.join(found.predicted.binds) or 'nothing'}"
    if len(found.shares) == 1:
        return f"one format is best: {mix_text(found)}, {found.predicted.rate:,.0f} images/s, {limit}"
    gain = ""
    if single is not None and found.gain >= 1:
        gain = f", {found.gain:.2f}x the best single format ({next(iter(single.shares))})"
    twice = "; every image is stored in both, and the loader chooses" if found.renditions == 2 else ""
    return f"{mix_text(found)}: {found.predicted.rate:,.0f} images/s{gain}, {limit}{twice}"


def size_sentence(found: Plan) -> str | None:
    """Say which format is faster and was not taken for its size, and how to ask for it; None if there is none."""
    faster = found.fastest_single
    if faster is None:
        return None
    times = faster.stored_bytes / max(found.predicted.stored_bytes, 1)
    budget = -(-int(faster.stored_bytes) // 10**6)
    return (
        f"{next(iter(faster.shares))} alone would be {faster.rate / found.predicted.rate - 1:.0%} faster and take "
        f"{times:.1f}x the disk; each doubling of the size must bring 10 %. To take it, give --disk-budget {budget}MB"
    )


def what_if_table(found: WhatIf) -> Table:
    """For each step the machine to take; what it costs only where there are prices."""
    currency, priced = found.prices.currency, _has_prices(found)
    cheapest = "cheapest" if priced else "smallest"
    table = _table(f"the {cheapest} machine that keeps the accelerator busy, batches of {found.batch_size}")
    costs = (f"{currency}/hour", f"million\nimages/{currency}") if priced else ()
    narrow = _longest_name(point.shares for point in found.best)
    for name in ("step", "cores", "storage", "mix", "images/s", "busy", *costs):
        mix = name == "mix"
        table.add_column(name, justify="left" if mix else "right", no_wrap=not mix, min_width=narrow if mix else None)
    for point in found.best[:_MOST_BEST]:
        cells = _point(point)
        table.add_row(*(cells if priced else cells[:-2]), style=None if point.keeps_busy else "dim")
    return table


def what_if_sentences(found: WhatIf) -> Iterator[str]:
    """What the table does not show by itself."""
    starving = [point for point in found.best if not point.keeps_busy]
    if starving:
        steps = ", ".join(f"{point.step * 1e3:.3g}" for point in starving[:_MOST_BEST])
        instead = "what gives most images for the money" if _has_prices(found) else "the fastest"
        yield f"no machine of the grid keeps the accelerator busy with a step of {steps} ms; {instead} is shown instead"
    if len(found.best) > _MOST_BEST:
        yield f"{len(found.best) - _MOST_BEST} more steps are in the file"


def _has_prices(found: WhatIf) -> bool:
    prices = found.prices
    return max(prices.vcpu_hour, prices.accelerator_hour, prices.gb_month) > 0


def _longest_name(mixes: Iterable[Mapping[str, float]]) -> int:
    """A column of mixes breaks between formats, not within a name."""
    return max((len(name) for shares in mixes for name in shares), default=0)


def _point(point: Point) -> tuple[str, ...]:
    mix = " + ".join(f"{share:.0%} {name}" for name, share in point.shares.items())
    return (
        f"{point.step * 1e3:.3g} ms",
        f"{point.cores:g}",
        bytes_per_second_text(point.storage_rate),
        mix.removeprefix("100% ") if len(point.shares) == 1 else mix,
        f"{point.rate:,.0f}",
        f"{point.busy:.0%}",
        f"{point.dollars_per_hour:.2f}",
        "any" if point.images_per_dollar == float("inf") else f"{point.images_per_dollar / 1e6:.3g}",
    )


def seconds_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _cells(prediction: Prediction, *, over: bool) -> tuple[str, ...]:
    size = bytes_text(int(prediction.stored_bytes))
    return (
        f"{prediction.rate:,.0f}",
        f"{prediction.preparation_rate:,.0f}",
        ", ".join(prediction.binds),
        f"{size}, too much" if over else size,
        seconds_text(prediction.build_seconds),
    )


def _machine(found: Plan) -> str:
    machine = found.machine
    words = [
        f"{machine.cores:g} core{'' if machine.cores == 1 else 's'}",
        f"storage {bytes_per_second_text(machine.storage_rate)}",
    ]
    if found.step:
        words.append(f"step {found.step * 1e3:.3g} ms for {found.calibration.batch_size}")
    return ", ".join(words) + (" (emulated)" if machine.emulated else "")


def _table(title: str) -> Table:
    from rich import box  # noqa: PLC0415 - slow to import
    from rich.table import Table  # noqa: PLC0415

    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)


@contextmanager
def shown_progress() -> Iterator[ProgressHook | None]:
    """Show the steps of a calibration on standard error: a bar on a terminal, silence elsewhere."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("[progress.description]{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("looking at the source", total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)
