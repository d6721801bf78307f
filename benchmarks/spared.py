# SPDX-License-Identifier: Apache-2.0
"""Measure what a near worker spares the host beside a slow trainer: `python benchmarks/spared.py [FOLDER]`.

A loader alone and one with a near worker, each a process of its own on the same core, train in turn: some seconds the
one, some seconds the other, while the other rests, and again. The trainer is a clock and takes half as long again for a
batch as the host does. Every window is of whole batches. The loader alone has eight of them under way, the one that is
spared has one: what else is ready lies in the exchange folder.

The near worker works between the windows and is stopped in them: on this machine it shares caches and memory with the
host, which a storage device's processor does not. The host must not take it for dead, so windows are shorter than that.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console
from rich.progress import track

from benchmarks import machine, results
from benchmarks._prongs.cell import ALONE, SPARING
from benchmarks._prongs.near import near_worker
from benchmarks._prongs.report import spared
from benchmarks._prongs.savings import Window, in_time, summarise
from benchmarks._prongs.sources import SOURCES, make_dataset
from headrace.prongs._exchange import BEAT_SECONDS, SILENT_SECONDS

_WINDOWS = Path(__file__).parent / "_prongs" / "windows.py"
_SLOW = 1.5  # the trainer's time by the host's
_REST = 3.0  # the same of what a window ends with, so that all is made that is begun
# A near worker that is stopped seems silent since its last beat that the host has seen, which was up to two before.
_STOPPED = SILENT_SECONDS - 2 * BEAT_SECONDS
# Between windows the near worker makes what was taken; it is asked for less than it can make in the trainer's time.
_BETWEEN, _LEAST_BETWEEN = 0.6, 1.0
# By how many batches the host's time is found, and how long it has at first for those that are under way.
_TRIAL, _LONG_REST = 24, 4.0
# A slow trainer's first batches, by those that are made ahead of it meanwhile, and all else that is so only at first.
_AHEAD = 3


def main(
    folder: Annotated[Path | None, typer.Argument(help="A folder of photographs. Default: painted pictures.")] = None,
    *,
    sources: Annotated[str, typer.Option(help=f"Some of {','.join(SOURCES)}.")] = "png",
    shares: Annotated[str, typer.Option(help="Shares of a core that the near worker gets.")] = "0.25",
    windows: Annotated[int, typer.Option(min=1, help="Of either kind.")] = 60,
    prefetch: Annotated[int, typer.Option(min=1, help="Batches that the host alone has under way.")] = 8,
    sparing: Annotated[int, typer.Option(min=1, help="The same where the near worker spares it.")] = 1,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
) -> None:
    """Measure the CPU that a near worker spares the host, against the share of the batches that it makes."""
    for name in sources.split(","):
        if name not in SOURCES:
            raise typer.BadParameter(f"there is no {name!r}; choose from {', '.join(SOURCES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that near workers and folders go too
    rows: list[dict[str, Any]] = []
    document = {
        "benchmark": "spared",
        "machine": machine.describe(),
        "commit": machine.commit(),
        "pictures": "painted" if folder is None else folder.name,
        "command": f"python benchmarks/spared.py {'' if folder is None else folder.name} --sources {sources} "
        f"--shares {shlex.quote(shares)} --windows {windows} --prefetch {prefetch} "
        f"--sparing {sparing}",
        "rows": rows,
    }
    with tempfile.TemporaryDirectory(prefix="headrace-spared-") as scratch:
        for name in sources.split(","):
            dataset = make_dataset(SOURCES[name], folder, Path(scratch) / f"{name}.hr")
            for share in map(float, shares.split(",")):
                exchange = Path(scratch) / f"exchange-{name}-{share:g}"
                rows.append(_measure(name, dataset, exchange, share, Extent(windows, prefetch, sparing)))
                if output is not None:
                    results.write(output, document)
    typer.echo(spared(rows).markdown())


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    windows: int
    """Of either kind."""
    prefetch: int
    """Batches that the host alone has under way."""
    sparing: int
    """The same where the near worker spares it."""


def _measure(source: str, dataset: Path, exchange: Path, share: float, extent: Extent) -> dict[str, Any]:
    cores = machine.usable_cores()
    order = {"source": source, "dataset": str(dataset), "core": cores[0], "step": 0.0}
    alone = {**order, "exchange": None, "strategy": ALONE, "prefetch": extent.prefetch}
    with _loader({**alone, "batches": 10_000}) as ask:
        trial = [Window(**ask(_TRIAL, _LONG_REST)) for _ in range(3)]
    host = min(window.own for window in trial)
    step, rest = _SLOW * host, max(0.25, _REST * host)
    count = int((_STOPPED - rest) / step)
    if count < 1:
        raise typer.BadParameter(f"{source}: a batch takes the host {host:.2g} s, too long for a window")
    first = max(count, _AHEAD * extent.prefetch)
    # The first epoch is left after some seconds; the second has all windows, and the loader must not see its end.
    timed = {"step": step, "batches": 2 * first + (extent.windows + 1) * count}
    beside = {**order, **timed, "exchange": str(exchange), "strategy": SPARING, "prefetch": extent.sparing}
    kinds: dict[str, list[Window]] = {"alone": [], "spared": []}
    with near_worker(dataset, exchange, share=share, core=cores[-1]) as near, ExitStack() as loaders:
        pair = []
        for kind, each in (("alone", {**alone, **timed}), ("spared", beside)):  # one after the other: both calibrate
            pair.append((kind, loaders.enter_context(_loader(each))))
            pair[-1][1](first, _LONG_REST)
        said = f"{source}, near worker at {share:g} of a core"
        for number in track(range(extent.windows), said, console=Console(stderr=True), transient=True):
            for kind, ask in pair if number % 2 == 0 else reversed(pair):
                time.sleep(max(_LEAST_BETWEEN, _BETWEEN * count * step))
                with _stopped(near):
                    kinds[kind].append(Window(**ask(count, rest)))
    kinds = {kind: in_time(found) for kind, found in kinds.items()}
    if not all(kinds.values()):
        raise RuntimeError(f"{source}: the near worker at {share:g} of a core was late in every window; give it more")
    return {
        "source": source,
        "share": share,
        "step": step,
        "batches": count,
        **summarise(kinds["alone"], kinds["spared"]),
        "windows": {
            kind: [[each.cpu, each.preparing, each.near, each.seconds] for each in found]
            for kind, found in kinds.items()
        },
    }


@contextmanager
def _stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextmanager
def _loader(order: dict[str, Any]) -> Iterator[Any]:
    """Have a loader that is asked for so many batches, and tells what they cost."""
    command = [sys.executable, str(_WINDOWS), json.dumps(order)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own script
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(count: int, rest: float) -> dict[str, Any]:
            print(count, rest, file=process.stdin, flush=True)
            answer = process.stdout.readline()
            if not answer:
                raise RuntimeError(f"the loader of {order['strategy']!r} has ended; it has said why")
            told: dict[str, Any] = json.loads(answer)
            return told

        try:
            yield ask
            process.stdin.close()
            process.wait(20)
        finally:
            process.kill()


if __name__ == "__main__":
    typer.run(main)
