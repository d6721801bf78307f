# SPDX-License-Identifier: Apache-2.0
"""Tables of plans and of sized machines, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.units import bytes_per_second_text, bytes_text

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.planning import Plan, Prediction, ProgressHook, SizedMachine, Sizing

_MAX_ROWS = 12


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


def sizing_table(found: Sizing) -> Table:
    """For each step the machine to take; prices and offload workers only where there are some."""
    currency, priced = found.prices.currency, found.prices.are_given
    offloads = any(each.offload_workers for each in found.machines)
    cheapest = "cheapest" if priced else "smallest"
    table = _table(f"the {cheapest} machine that keeps the GPU busy, batches of {found.batch_size}")
    names = ["step", "cores", "storage", "mix", "images/s", "busy"]
    names[3:3] = ["offload\nworkers"] if offloads else []
    names += [f"{currency}/hour", f"million\nimages/{currency}"] if priced else []
    narrow = _longest_name(each.shares for each in found.best)
    for name in names:
        mix = name == "mix"
        table.add_column(name, justify="left" if mix else "right", no_wrap=not mix, min_width=narrow if mix else None)
    for each in found.best[:_MAX_ROWS]:
        cells = _machine_cells(each, offloads=offloads, priced=priced)
        table.add_row(*cells, style=None if each.keeps_busy else "dim")
    return table


def sizing_notes(found: Sizing) -> Iterator[str]:
    """What the table does not show by itself."""
    waiting = [each for each in found.best if not each.keeps_busy]
    if waiting:
        steps = ", ".join(f"{each.step * 1e3:.3g}" for each in waiting[:_MAX_ROWS])
        instead = "the one with the most images for the money" if found.prices.are_given else "the fastest"
        yield f"none of these machines keeps the GPU busy with a step of {steps} ms; {instead} is shown"
    if len(found.best) > _MAX_ROWS:
        yield f"{len(found.best) - _MAX_ROWS} more steps are not shown; --json prints all"


def _longest_name(mixes: Iterable[Mapping[str, float]]) -> int:
    """A column of mixes breaks between formats, not within a name."""
    return max((len(name) for shares in mixes for name in shares), default=0)


def _machine_cells(each: SizedMachine, *, offloads: bool, priced: bool) -> Iterator[str]:
    mix = " + ".join(f"{share:.0%} {name}" for name, share in each.shares.items())
    yield from (f"{each.step * 1e3:.3g} ms", f"{each.cores:g}", bytes_per_second_text(each.storage_rate))
    if offloads:
        yield f"{each.offload_workers}"
    yield mix.removeprefix("100% ") if len(each.shares) == 1 else mix
    yield from (f"{each.rate:,.0f}", f"{each.busy:.0%}")
    if priced:
        free = each.images_per_dollar == float("inf")
        yield from (f"{each.dollars_per_hour:.2f}", "any" if free else f"{each.images_per_dollar / 1e6:.3g}")


def print_table(table: Table) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import

    Console().print(table)


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
