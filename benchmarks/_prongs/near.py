# SPDX-License-Identifier: Apache-2.0
"""A near worker beside the measurement: `headrace near` as users start it, on a core of its own, with a share of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import machine


@contextmanager
def near_worker(dataset: Path, exchange: Path, *, share: float, core: int) -> Iterator[subprocess.Popen[bytes]]:
    """Have a near worker running; its words are shown if it ends before it should."""
    exchange.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "headrace", "near", str(dataset), str(exchange), "--cpu-share", f"{share:.4f}"]
    with (exchange.parent / f"{exchange.name}.log").open("w+b") as log:
        process = machine.start_on(core, command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield process
            if process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"the near worker has ended: {log.read().decode(errors='replace')[-2000:]}")
        finally:
            process.terminate()
            process.wait(20)
