# SPDX-License-Identifier: Apache-2.0
"""Convert many image files on several threads, with a progress bar, a summary, and each failure by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headrace.cli.shared.files import FileTask, plan_tasks, write_file
from headrace.cli.shared.output import FAILED, INTERRUPTED, counted
from headrace.terminal import printable
from headrace.units import bytes_text, usable_cores

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class ConvertedFile:
    """The result of converting one file."""

    content: bytes
    n_pixels: int
    bytes_read: int
    codec_seconds: float
    """Time in Headrace's own encode or decode, without reading, writing and other formats."""


@dataclass(slots=True)
class _Tally:
    files: int = 0
    n_pixels: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    codec_seconds: float = 0.0
    seconds: float = 0.0
    failed: list[tuple[Path, str]] = field(default_factory=list)

    def add(self, made: ConvertedFile) -> None:
        self.files += 1
        self.n_pixels += made.n_pixels
        self.bytes_read += made.bytes_read
        self.bytes_written += len(made.content)
        self.codec_seconds += made.codec_seconds

    def summary(self, verb: str) -> str:
        line = f"{verb} {counted(self.files, 'image')}"
        if not self.files:
            return line
        megapixels = self.n_pixels / 1e6
        return (
            f"{line}: {bytes_text(self.bytes_read)} → {bytes_text(self.bytes_written)} "
            f"(ratio {self.bytes_written / max(self.bytes_read, 1):.3f}), {megapixels:.1f} MP in {self.seconds:.2f} s "
            f"({megapixels / max(self.seconds, 1e-9):.1f} MP/s; "
            f"codec alone {megapixels / max(self.codec_seconds, 1e-9):.0f} MP/s per thread)"
        )


def convert_files(
    inputs: Sequence[str],
    output: Path | None,
    convert: Callable[[Path], ConvertedFile],
    *,
    suffixes: Collection[str],
    suffix: str,
    verb: str,
    workers: int,
    force: bool,
    quiet: bool,
) -> None:
    """Convert every input file and write the results; exit with code 1 if any of them failed."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    try:
        tasks, refused = plan_tasks(inputs, output, suffixes=suffixes, suffix=suffix, force=force)
    except ValueError as error:
        raise typer.BadParameter(printable(error), param_hint="--output") from None
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    tally = _Tally(failed=refused)
    for path, reason in refused:
        _show_failure(console, path, reason)

    def work(task: FileTask) -> ConvertedFile:
        made = convert(task.source)
        write_file(task.target, made.content, force=force)
        return made

    try:
        _run(tasks, work, tally, console, workers or usable_cores(), hide_progress=quiet or not console.is_terminal)
    except KeyboardInterrupt:
        console.print("interrupted; all files that were written are complete")
        raise typer.Exit(INTERRUPTED) from None
    if not quiet:
        typer.echo(tally.summary(verb))
    if tally.failed:
        typer.echo(f"{counted(len(tally.failed), 'file')} failed; see above", err=True)
        raise typer.Exit(FAILED)


def _run(
    tasks: list[FileTask],
    work: Callable[[FileTask], ConvertedFile],
    tally: _Tally,
    console: Console,
    workers: int,
    *,
    hide_progress: bool,
) -> None:
    from rich import progress  # noqa: PLC0415 - slow to import

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}", markup=False),
    )
    started = time.perf_counter()
    bar = progress.Progress(*columns, console=console, transient=True, disable=hide_progress)
    with bar, ThreadPoolExecutor(workers) as pool:
        row = bar.add_task("", total=len(tasks))
        futures = {pool.submit(work, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                source = futures[future].source
                error = future.exception()
                if error is None:
                    tally.add(future.result())
                elif isinstance(error, Exception):  # a damaged input does not stop the others
                    tally.failed.append((source, f"{type(error).__name__}: {error}"))
                    _show_failure(console, *tally.failed[-1])
                else:
                    raise error
                bar.update(row, advance=1, description=printable(source.name))
        finally:
            # On Ctrl-C, files in progress are finished and no more are started.
            pool.shutdown(wait=True, cancel_futures=True)
    tally.seconds = time.perf_counter() - started


def _show_failure(console: Console, path: Path, reason: str) -> None:
    console.print("failed", style="red", end=" ")
    console.print(printable(f"{path}: {reason}"), markup=False)
