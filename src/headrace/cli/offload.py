# SPDX-License-Identifier: Apache-2.0
"""`headrace offload`: prepare batches for a loader, from the tail of the epoch."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.shared.options import parse_size
from headrace.cli.shared.output import FAILED, fail
from headrace.errors import HeadraceError
from headrace.terminal import printable
from headrace.units import bytes_text, usable_cores

if TYPE_CHECKING:
    from headrace.offload.worker import OffloadWorker, WorkerProgress

_SHOWN_SECONDS = 0.5
_LINE_SECONDS = 10.0
_CLEAR = "\r\x1b[K"


def offload(
    dataset: Annotated[Path, typer.Argument(help="The dataset that the loader reads.", show_default=False)],
    exchange: Annotated[
        Path, typer.Argument(help="The exchange folder, which loader and worker can both write to.", show_default=False)
    ],
    workers: Annotated[
        int, typer.Option("--workers", "-j", min=0, help="Number of threads; 0 means one per core.")
    ] = 1,
    ahead: Annotated[str, typer.Option(help="Keep at most this many bytes of unread batches in the folder.")] = "2GB",
    ranks: Annotated[str | None, typer.Option(help="Serve only these ranks, as 0,2-5.", show_default="all")] = None,
    watts: Annotated[
        float | None,
        typer.Option(min=0, help="Watts of a busy core, for the energy figures.", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Exit when all loaders that were served are closed.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Prepare batches for loaders that use the same exchange folder.

    Run it on a spare core, on the storage server, or on a computational
    storage device. It needs the dataset and a folder that both sides can
    write to, and no network. Start it before or after the training; stop and
    restart it at any time.

    It reports on standard error which loaders it serves. SIGTERM, SIGINT
    (Ctrl-C) and SIGHUP stop it with exit code 0, or with 128 plus the
    signal's number if it could not end within 10 seconds.

    \b
    headrace offload photos.hr /mnt/store/exchange
    headrace offload photos.hr /dev/shm/exchange --workers 2
    """
    chosen = None if ranks is None else parse_ranks(ranks)
    ahead_bytes = parse_size(ahead)

    try:
        code = _serve(dataset, exchange, workers, ahead_bytes, chosen, watts, once, quiet)
    except HeadraceError as error:
        fail(error)
        raise typer.Exit(FAILED) from None
    raise typer.Exit(code)


def parse_ranks(text: str) -> set[int]:
    """Read `0,2-5`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise typer.BadParameter(f"{text!r} is not a list of ranks: write, for example, 0,2-5")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found


def _threads(workers: int) -> int:
    return workers or usable_cores()


def _serve(
    dataset: Path,
    exchange: Path,
    workers: int,
    ahead_bytes: int,
    ranks: Collection[int] | None,
    watts: float | None,
    once: bool,
    quiet: bool,
) -> int:
    from headrace.offload.worker import OffloadWorker, StopOnSignals  # noqa: PLC0415 - brings pyarrow; other verbs need none

    worker: OffloadWorker | None = None
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        if worker is not None:
            worker.stop()

    printer = _Printer(exchange, quiet=quiet)
    with StopOnSignals(stop) as signals:
        try:
            worker = OffloadWorker(
                dataset,
                exchange,
                threads=_threads(workers),
                ahead_bytes=ahead_bytes,
                ranks=ranks,
                watts=watts,
                report=printer.line,
            )
        except (HeadraceError, OSError, ValueError) as error:
            fail(error)
            return FAILED
        if asked:
            worker.stop()
        worker.run(once=once, show=printer.show)
    why = "ended" if signals.received is None else f"stopped by {signals.received.name}"
    printer.line(f"{why}: gave {_given(worker.progress())}")
    return 0


class _Printer:
    """Prints on standard error: lines as things happen, and progress, on a terminal as one line that changes."""

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
        """Show progress if it is time to, and if it has changed."""
        now = time.monotonic()
        if self._quiet or now - self._last < (_SHOWN_SECONDS if self._terminal else _LINE_SECONDS):
            return
        self._last = now
        text = printable(_line(worker.progress(), self._exchange))
        if self._terminal:
            typer.echo(f"{_CLEAR}{text}", err=True, nl=False)
        elif text != self._shown:
            typer.echo(text, err=True)
        self._shown = text


def _line(now: WorkerProgress, exchange: Path) -> str:
    trouble = f"; {now.trouble}" if now.trouble else ""
    if not now.ranks:
        return f"waiting for a loader in {exchange}{trouble}"
    pace = "" if now.seconds_a_batch is None else f", {now.seconds_a_batch:.3g} s per batch"
    return (
        f"serving {now.ranks} {'rank' if now.ranks == 1 else 'ranks'}: gave {_given(now)}{pace}, "
        f"{bytes_text(now.held_bytes)} not read yet, {now.cpu_seconds:.1f} CPU seconds{trouble}"
    )


def _given(now: WorkerProgress) -> str:
    batches = "1 batch" if now.batches == 1 else f"{now.batches} batches"
    return f"{batches}, {bytes_text(now.given_bytes)}"
