# SPDX-License-Identifier: Apache-2.0
"""Run one task a file on many threads: a progress bar, a summary, and the failures by name."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headrace.cli._files import Task, Tasks
from headrace.terminal import printable
from headrace.units import bytes_text, usable_cores

if TYPE_CHECKING:
    from rich.console import Console

FAILED = 1
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Done:
    """What one task did."""

    n_pixels: int
    bytes_read: int
    bytes_written: int
    codec_seconds: float
    """In headrace's own encode or decode, without reading, writing and other formats."""


@dataclass(slots=True)
class Tally:
    """What all tasks did."""

    done: list[Done] = field(default_factory=list)
    failed: list[tuple[Path, str]] = field(default_factory=list)
    seconds: float = 0.0

    def summary(self, verb: str) -> str:
        """Two lines at most: what was done and how fast."""
        read = sum(done.bytes_read for done in self.done)
        written = sum(done.bytes_written for done in self.done)
        megapixels = sum(done.n_pixels for done in self.done) / 1e6
        codec_seconds = sum(done.codec_seconds for done in self.done)
        line = f"{verb} {len(self.done)} image{'' if len(self.done) == 1 else 's'}"
        if not self.done:
            return line
        return (
            f"{line}: {bytes_text(read)} → {bytes_text(written)} (ratio {written / max(read, 1):.3f}), "
            f"{megapixels:.1f} MP in {self.seconds:.2f} s ({megapixels / max(self.seconds, 1e-9):.1f} MP/s; "
            f"the codec alone {megapixels / max(codec_seconds, 1e-9):.0f} MP/s a thread)"
        )


def run(tasks: Tasks, work: Callable[[Task], Done], *, verb: str, workers: int) -> None:
    """Do all tasks, report, and leave with the exit code that the result deserves."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    tally = Tally(failed=list(tasks.refused))
    for path, reason in tally.failed:
        _show_failure(console, path, reason)
    try:
        _work_through(tasks.ready, work, tally, console, workers)
    except KeyboardInterrupt:
        console.print("interrupted; the files that were finished are whole, and no others were left behind")
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(tally.summary(verb))
    if tally.failed:
        typer.echo(f"{len(tally.failed)} failed, named above", err=True)
        raise typer.Exit(FAILED)


def _work_through(
    tasks: list[Task], work: Callable[[Task], Done], tally: Tally, console: Console, workers: int
) -> None:
    from rich import progress  # noqa: PLC0415 - slow to import

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}", markup=False),
    )
    started = time.perf_counter()
    bar = progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar, ThreadPoolExecutor(workers or usable_cores()) as pool:
        row = bar.add_task("", total=len(tasks))
        futures = {pool.submit(work, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                source = futures[future].source
                error = future.exception()
                if error is None:
                    tally.done.append(future.result())
                elif isinstance(error, Exception):  # one damaged input costs no other
                    tally.failed.append((source, _reason(error)))
                    _show_failure(console, *tally.failed[-1])
                else:
                    raise error
                bar.update(row, advance=1, description=printable(source.name))
        finally:
            # On Ctrl-C what is under way is finished, and nothing more is begun.
            pool.shutdown(wait=True, cancel_futures=True)
    tally.seconds = time.perf_counter() - started


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _show_failure(console: Console, path: Path, reason: str) -> None:
    console.print("failed", style="red", end=" ")
    console.print(printable(f"{path}: {reason}"), markup=False)
