# SPDX-License-Identifier: Apache-2.0
"""`headrace near`: prepares batches beside the storage, from the tail of the epoch."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import _batch
from headrace.cli._say import fail
from headrace.cli.build import parse_size
from headrace.errors import HeadraceError
from headrace.terminal import printable
from headrace.units import bytes_text, usable_cores

if TYPE_CHECKING:
    from headrace.prongs.worker import NearWorker, Progress

_SHOWN_SECONDS = 0.5
_LINE_SECONDS = 10.0
_CLEAR = "\r\x1b[K"
_SIMULATION = "Simulation"


def near(
    dataset: Annotated[
        Path | None, typer.Argument(help="The dataset, as the trainer has it.", show_default=False)
    ] = None,
    exchange: Annotated[Path | None, typer.Argument(help="The folder that both sides see.", show_default=False)] = None,
    cpu_share: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Take no more than this part of each worker's core.")
    ] = 1.0,
    workers: Annotated[int, typer.Option("--workers", "-j", min=0, help="Threads; 0 for one a core.")] = 1,
    ahead: Annotated[str, typer.Option(help="Unread batches that may lie in the folder, in bytes.")] = "2GB",
    ranks: Annotated[str | None, typer.Option(help="Serve these ranks alone, as 0,2-5.", show_default="all")] = None,
    watts: Annotated[
        float | None, typer.Option(min=0, help="What a busy core takes, for the energy account.", show_default=False)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Leave when the trainings that were served have ended.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate", help="Work nothing, and print what near devices would bring.", rich_help_panel=_SIMULATION
        ),
    ] = False,
    host_seconds: Annotated[
        float, typer.Option(min=0, help="What the host takes to make a batch.", rich_help_panel=_SIMULATION)
    ] = 0.1,
    near_seconds: Annotated[
        float, typer.Option(min=0, help="What a near device takes.", rich_help_panel=_SIMULATION)
    ] = 0.4,
    step_seconds: Annotated[
        float, typer.Option(min=0, help="What a training step takes.", rich_help_panel=_SIMULATION)
    ] = 0.03,
    batch_size: Annotated[
        str, typer.Option(help="A prepared batch, in bytes.", rich_help_panel=_SIMULATION)
    ] = "38.5MB",
    link_rate: Annotated[
        str, typer.Option(help="What the link to all devices carries a second.", rich_help_panel=_SIMULATION)
    ] = "6GB",
) -> None:
    """Prepare batches near the storage, for trainers whose loader names the same folder.

    It runs on a computational storage device, on the storage server, or on a
    spare core, and needs the dataset and a folder that both sides see; no
    network. It can be started before the trainer or after it, and be stopped
    and started again at any time.

    On standard error it reports whom it serves and how much it has given. SIGTERM, SIGINT (Ctrl-C) and SIGHUP stop it;
    the exit code is 0 then, and 128 plus the signal's number if it could not end within 10 seconds.

    \b
    headrace near photos.hr /mnt/store/exchange
    headrace near photos.hr /dev/shm/exchange --cpu-share 0.25
    headrace near --simulate --host-seconds 0.2 --near-seconds 0.8
    """
    if simulate:
        from headrace.prongs._simulator_table import simulate_table  # noqa: PLC0415 - rarely asked for

        table = simulate_table(
            host=host_seconds,
            near=near_seconds,
            step=step_seconds,
            batch_mb=parse_size(batch_size) / 1e6,
            link_mbs=parse_size(link_rate) / 1e6,
        )
        typer.echo(table)
        return
    if dataset is None or exchange is None:
        raise typer.BadParameter("name the dataset and the exchange folder")
    chosen = None if ranks is None else parse_ranks(ranks)
    ahead_bytes = parse_size(ahead)

    def work() -> int:
        return _serve(dataset, exchange, cpu_share, workers, ahead_bytes, chosen, watts, once, quiet)

    try:
        if cpu_share < 1:
            from headrace.prongs._throttle import run_throttled  # noqa: PLC0415 - rarely asked for

            code = run_throttled(cpu_share * _threads(workers), work)
        else:
            code = work()
    except HeadraceError as error:
        fail(error)
        raise typer.Exit(_batch.FAILED) from None
    raise typer.Exit(code)


def parse_ranks(text: str) -> set[int]:
    """Read `0,2-5`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise typer.BadParameter(f"{text!r} are no ranks; write 0,2-5")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found


def _threads(workers: int) -> int:
    return workers or usable_cores()


def _serve(
    dataset: Path,
    exchange: Path,
    cpu_share: float,
    workers: int,
    ahead_bytes: int,
    ranks: Collection[int] | None,
    watts: float | None,
    once: bool,
    quiet: bool,
) -> int:
    from headrace.prongs.worker import NearWorker, StopOnSignals  # noqa: PLC0415 - brings pyarrow; other verbs need none

    worker: NearWorker | None = None
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        if worker is not None:
            worker.stop()

    printer = _Printer(exchange, quiet=quiet)
    with StopOnSignals(stop) as signals:
        try:
            worker = NearWorker(
                dataset,
                exchange,
                threads=_threads(workers),
                ahead_bytes=ahead_bytes,
                cpu_share=cpu_share,
                ranks=ranks,
                watts=watts,
                report=printer.line,
            )
        except (HeadraceError, OSError, ValueError) as error:
            fail(error)
            return _batch.FAILED
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

    def show(self, worker: NearWorker) -> None:
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


def _line(now: Progress, exchange: Path) -> str:
    trouble = f"; {now.trouble}" if now.trouble else ""
    if not now.ranks:
        return f"waiting for a loader in {exchange}{trouble}"
    pace = "" if now.seconds_a_batch is None else f", {now.seconds_a_batch:.3g} s per batch"
    return (
        f"serving {now.ranks} {'rank' if now.ranks == 1 else 'ranks'}: gave {_given(now)}{pace}, "
        f"{bytes_text(now.held_bytes)} not read yet, {now.cpu_seconds:.1f} CPU seconds{trouble}"
    )


def _given(now: Progress) -> str:
    batches = "1 batch" if now.batches == 1 else f"{now.batches} batches"
    return f"{batches}, {bytes_text(now.given_bytes)}"
