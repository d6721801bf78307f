# SPDX-License-Identifier: Apache-2.0
"""Convert many image files on several threads, with a progress bar, a summary, and each failure by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple, TypeAlias

import typer

from headrace.cli.shared.files import FileTask, plan_tasks
from headrace.cli.shared.output import FAILED, counted, exit_on_error, say, shown_progress
from headrace.files import write_atomic
from headrace.terminal import printable
from headrace.units import bytes_text, usable_cores


class ConvertedFile(NamedTuple):
    """The result of converting one file."""

    content: bytes
    n_pixels: int
    bytes_read: int


_Figures: TypeAlias = tuple[int, int, int]
"""Of one written file: pixels, bytes read and bytes written."""


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
    try:
        tasks, refused = plan_tasks(inputs, output, suffixes=suffixes, suffix=suffix, force=force)
    except ValueError as error:
        raise typer.BadParameter(printable(error), param_hint="--output") from None
    for path, reason in refused:
        say(f"failed {path}: {reason}", err=True)

    def work(task: FileTask) -> _Figures:
        made = convert(task.source)
        task.target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(task.target, made.content, overwrite=force)
        return made.n_pixels, made.bytes_read, len(made.content)

    started = time.perf_counter()
    with exit_on_error("interrupted; all files that were written are complete"):
        done = _run(tasks, work, workers or usable_cores(), quiet=quiet)
    if not quiet:
        typer.echo(_summary(verb, done, time.perf_counter() - started))
    n_failed = len(refused) + len(tasks) - len(done)
    if n_failed:
        typer.echo(f"{counted(n_failed, 'file')} failed; see above", err=True)
        raise typer.Exit(FAILED)


def _run(tasks: list[FileTask], work: Callable[[FileTask], _Figures], workers: int, *, quiet: bool) -> list[_Figures]:
    """Return the figures of the files that were written; failures are shown."""
    done: list[_Figures] = []
    with shown_progress(quiet=quiet, time_left=True) as update, ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(work, task): task.source for task in tasks}
        try:
            for completed, future in enumerate(as_completed(futures), 1):
                source = futures[future]
                try:
                    done.append(future.result())
                except Exception as error:  # noqa: BLE001 - a damaged input does not stop the others
                    say(f"failed {source}: {type(error).__name__}: {error}", err=True)
                update(completed=completed, total=len(tasks), description=printable(source.name))
        finally:
            # On Ctrl-C, files in progress are finished and no more are started.
            pool.shutdown(wait=True, cancel_futures=True)
    return done


def _summary(verb: str, done: list[_Figures], seconds: float) -> str:
    line = f"{verb} {counted(len(done), 'image')}"
    if not done:
        return line
    n_pixels, bytes_read, bytes_written = map(sum, zip(*done, strict=True))
    megapixels = n_pixels / 1e6
    return (
        f"{line}: {bytes_text(bytes_read)} → {bytes_text(bytes_written)} "
        f"(ratio {bytes_written / max(bytes_read, 1):.3f}), {megapixels:.1f} MP in {seconds:.2f} s "
        f"({megapixels / max(seconds, 1e-9):.1f} MP/s)"
    )
