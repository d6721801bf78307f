# SPDX-License-Identifier: Apache-2.0
"""One run of one loader: a process tree, held to as many cores as it has workers, with its memory sampled."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from benchmarks import machine
from benchmarks._loaders.cases import Case, Contender, Environments
from benchmarks._loaders.stores import Store

_SAMPLE_SECONDS = 0.1
_TIMEOUT_SECONDS = 1800

Row = dict[str, Any]


class Failed(Exception):
    """A peer's program ended with an error, or did not do the work that was asked for."""


def run(contender: Contender, case: Case, store: Store, environments: Environments, *, workers: int, seed: int) -> Row:
    """Start a loader, wait for it, and return what it printed, with its peak memory."""
    options = {
        "crop": case.crop,
        "size": case.size,
        "batch-size": case.batch_size,
        "workers": workers,
        "epochs": case.epochs,
        "seed": seed,
        "variant": contender.variant,
    }
    arguments = ["run", str(store.path), *(f"--{name}={value}" for name, value in options.items())]
    with machine.held_to(workers):
        process = subprocess.Popen(  # noqa: S603 - our own arguments
            environments.command(contender.program, arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | dict(contender.environ),
        )
    with process, _Memory(process.pid) as memory:
        try:
            output, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise Failed(f"{contender.name} on {case.name} exited with status {process.returncode}: {_last_line(errors)}")
    row: Row = json.loads(output.splitlines()[-1]) | memory.peak
    _check(row, contender, case, store.images * case.epochs)
    return row


def _check(row: Row, contender: Contender, case: Case, images: int) -> None:
    """Check the number, shape and type of the images; their mean and deviation are compared later."""
    wanted = {"images": images, "shapes": [[3, case.size, case.size]], "dtypes": ["float32"]}
    found = {name: row[name] for name in wanted}
    if found != wanted:
        raise Failed(f"{contender.name} on {case.name} must return {wanted}; got {found}")


class _Memory:
    """Samples the memory of a process and its descendants; pages that several share count once (PSS)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak = {"peak_rss_bytes": 0, "peak_mapped_bytes": 0}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = _SAMPLE_SECONDS
        while not self._end.wait(pause):
            start = time.perf_counter()
            parts = [_pss(pid) for pid in _tree(self._pid)]
            whole, mapped = (sum(column) for column in zip(*parts, strict=True)) if parts else (0, 0)
            if whole > self.peak["peak_rss_bytes"]:
                self.peak = {"peak_rss_bytes": whole, "peak_mapped_bytes": mapped}
            # A sample walks all page tables: keep it below 2 % of a core.
            pause = max(_SAMPLE_SECONDS, 50 * (time.perf_counter() - start))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text(encoding="utf-8").split()
        except OSError:
            continue
        for child in children:
            yield from _tree(int(child))


def _pss(pid: int) -> tuple[int, int]:
    """Return the bytes of a process, and how many of them are pages of mapped files; zeros if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        return 0, 0
    sizes = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
    return sizes.get("Pss", 0), sizes.get("Pss_File", 0)


def _last_line(errors: str) -> str:
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
