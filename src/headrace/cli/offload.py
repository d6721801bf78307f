# SPDX-License-Identifier: Apache-2.0
"""`headrace offload`: prepare batches for a loader, from the tail of the epoch."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.shared.options import Quiet, parse_size
from headrace.cli.shared.output import counted, exit_on_error
from headrace.terminal import printable
from headrace.units import bytes_text, usable_cores

if TYPE_CHECKING:
    from headrace.offload.worker import OffloadWorker, WorkerProgress

_TERMINAL_SECONDS = 0.5
_LINE_SECONDS = 10.0
_CLEAR = "\r\x1b[K"


def offload(
    dataset: Annotated[Path, typer.Argument(help="Path of the dataset that the loader reads.", show_default=False)],
    exchange: Annotated[
        Path,
        typer.Argument(help="Exchange folder, which the loader and the worker can both write to.", show_default=False),
    ],
    workers: Annotated[
        int, typer.Option("--workers", "-j", min=0, help="Number of threads; 0 starts one thread per core.")
    ] = 1,
    ahead: Annotated[
        str, typer.Option(help="Keep at most this many bytes of unread batches in the folder, such as 500MB or 2GB.")
    ] = "2GB",
    ranks: Annotated[
        str | None,
        typer.Option(help="Prepare batches only for these ranks of the training, such as 0,2-5.", show_default="all"),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Exit when all loaders that were served are closed, instead of waiting.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Prepare batches for loaders that use the same exchange folder.

    Run it on a spare core, on the storage server, or on a computational
    storage device. It needs the dataset and a folder that both sides can
    write to, and no network. Start it before or after the training; stop and
    restart it at any time.

    It reports on standard error which loaders it serves. SIGTERM, SIGINT
    (Ctrl-C) and SIGHUP stop it with exit code 0, or with 128 plus the number
    of the signal if it does not end within 10 seconds.

    \b
    headrace offload photos.hr /mnt/store/exchange
    headrace offload photos.hr /dev/shm/exchange --workers 2
    """
    chosen = None if ranks is None else parse_ranks(ranks)
    ahead_bytes = parse_size(ahead)
    from headrace.offload.worker import OffloadWorker, StopOnSignals, prepared_text  # noqa: PLC0415 - imports pyarrow

    worker: OffloadWorker | None = None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        if worker is not None:
            worker.stop()

    printer = _Printer(exchange, quiet=quiet)
    with StopOnSignals(stop) as signals, exit_on_error():
        worker = OffloadWorker(
            dataset,
            exchange,
            threads=workers or usable_cores(),
            ahead_bytes=ahead_bytes,
            ranks=chosen,
            report=printer.line,
        )
        if stopped:
            worker.stop()
        worker.run(once=once, show=printer.show)
    why = "ended" if signals.received is None else f"stopped by {signals.received.name}"
    done = worker.progress()
    printer.line(f"{why}: {prepared_text(done.batches, done.written_bytes)}")


def parse_ranks(text: str) -> set[int]:
    """Parse a list of ranks such as `0,2-5`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise typer.BadParameter(f"must be a list of ranks such as 0,2-5; got {text!r}")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found


class _Printer:
    """Prints on standard error: lines for events, and progress, which on a terminal is one line that changes."""

    def __init__(self, exchange: Path, *, quiet: bool) -> None:
        self._exchange, self._quiet = exchange, quiet
        self._terminal = sys.stderr.isatty()
        self._last = 0.0
        self._shown = ""

    def line(self, text: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            typer.echo(f"{_CLEAR if self._terminal else ''}{printable(text)}", err=True)

    def show(self, worker: OffloadWorker) -> None:
        """Print the progress, at most every 0.5 s on a terminal, else every 10 s and only if it has changed."""
        now = time.monotonic()
        if self._quiet or now - self._last < (_TERMINAL_SECONDS if self._terminal else _LINE_SECONDS):
            return
        self._last = now
        text = printable(_line(worker.progress(), self._exchange))
        if self._terminal:
            typer.echo(f"{_CLEAR}{text}", err=True, nl=False)
        elif text != self._shown:
            typer.echo(text, err=True)
        self._shown = text


def _line(progress: WorkerProgress, exchange: Path) -> str:
    from headrace.offload.worker import prepared_text  # noqa: PLC0415 - imports pyarrow, which is slow

    trouble = f"; {progress.trouble}" if progress.trouble else ""
    if not progress.ranks:
        return f"waiting for a loader in {exchange}{trouble}"
    pace = "" if progress.seconds_per_batch is None else f", {progress.seconds_per_batch:.3g} s per batch"
    return (
        f"serving {counted(progress.ranks, 'rank')}: {prepared_text(progress.batches, progress.written_bytes)}{pace}, "
        f"{bytes_text(progress.held_bytes)} not read yet, {progress.cpu_seconds:.1f} CPU seconds{trouble}"
    )
