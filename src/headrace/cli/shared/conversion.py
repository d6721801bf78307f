# SPDX-License-Identifier: Apache-2.0
"""Convert many image files on several threads, with a progress bar, a summary, and each failure by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from headrace.cli.shared.files import FileTask, plan_tasks
from headrace.cli.shared.output import FAILED, INTERRUPTED, counted
from headrace.files import write_atomic
from headrace.terminal import printable
from headrace.units import bytes_text, usable_cores

if TYPE_CHECKING:
    from rich.console import Console


class ConvertedFile(NamedTuple):
    """The result of converting one file."""

    content: bytes
    n_pixels: int
    bytes_read: int
    codec_seconds: float
    """Time in Headrace's own encode or decode, without reading, writing and other formats."""


class _Counts(NamedTuple):
    """Figures of one written file."""

    n_pixels: int
    bytes_read: int
    bytes_written: int
    codec_seconds: float


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
    for path, reason in refused:
        _show_failure(console, path, reason)

    def work(task: FileTask) -> _Counts:
        made = convert(task.source)
        task.target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(task.target, made.content, overwrite=force)
        return _Counts(made.n_pixels, made.bytes_read, len(made.content), made.codec_seconds)

    started = time.perf_counter()
    try:
        done = _run(tasks, work, console, workers or usable_cores(), hide_progress=quiet or not console.is_terminal)
    except KeyboardInterrupt:
        console.print("interrupted; all files that were written are complete")
        raise typer.Exit(INTERRUPTED) from None
    if not quiet:
        typer.echo(_summary(verb, done, time.perf_counter() - started))
    n_failed = len(refused) + len(tasks) - len(done)
    if n_failed:
        typer.echo(f"{counted(n_failed, 'file')} failed; see above", err=True)
        raise typer.Exit(FAILED)


def _run(
    tasks: list[FileTask],
    work: Callable[[FileTask], _Counts],
    console: Console,
    workers: int,
    *,
    hide_progress: bool,
) -> list[_Counts]:
    """Return the figures of the files that were written; failures are shown."""
    from rich import progress  # noqa: PLC0415 - slow to import

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}", markup=False),
    )
    done: list[_Counts] = []
    bar = progress.Progress(*columns, console=console, transient=True, disable=hide_progress)
    with bar, ThreadPoolExecutor(workers) as pool:
        row = bar.add_task("", total=len(tasks))
        futures = {pool.submit(work, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                source = futures[future].source
                error = future.exception()
                if error is None:
                    done.append(future.result())
                elif isinstance(error, Exception):  # a damaged input does not stop the others
                    _show_failure(console, source, f"{type(error).__name__}: {error}")
                else:
                    raise error
                bar.update(row, advance=1, description=printable(source.name))
        finally:
            # On Ctrl-C, files in progress are finished and no more are started.
            pool.shutdown(wait=True, cancel_futures=True)
    return done


def _summary(verb: str, done: list[_Counts], seconds: float) -> str:
    line = f"{verb} {counted(len(done), 'image')}"
    if not done:
        return line
    n_pixels, bytes_read, bytes_written, codec_seconds = map(sum, zip(*done, strict=True))
    megapixels = n_pixels / 1e6
    return (
        f"{line}: {bytes_text(bytes_read)} → {bytes_text(bytes_written)} "
        f"(ratio {bytes_written / max(bytes_read, 1):.3f}), {megapixels:.1f} MP in {seconds:.2f} s "
        f"({megapixels / max(seconds, 1e-9):.1f} MP/s; "
        f"codec alone {megapixels / max(codec_seconds, 1e-9):.0f} MP/s per thread)"
    )


def _show_failure(console: Console, path: Path, reason: str) -> None:
    console.print("failed", style="red", end=" ")
    console.print(printable(f"{path}: {reason}"), markup=False)
