# SPDX-License-Identifier: Apache-2.0
"""Headrace's builds of a folder of PNGs, and the bare decoding and encoding that none of them can avoid.

Each runs in a process of its own: `python benchmarks/_build/contenders.py NAME SOURCE DEST WORKERS` prints its cost.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

import json
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace import formats

Contender = Callable[[Path, Path, int], None]

BOUND = "decode + encode hri:dense, nothing else"


def _decode_and_encode(path: Path) -> int:
    encoder, mode = formats.parse("hri:dense")
    return len(encoder.encode(formats.decode(path.read_bytes()), mode=mode))


def _bound(source: Path, _: Path, workers: int) -> None:
    """Decode and encode in threads and drop the bytes: the lower bound of any build."""
    with ThreadPoolExecutor(workers) as pool:
        sum(pool.map(_decode_and_encode, sorted(source.rglob("*.png"))))


def _headrace(target: str, *, verify: bool = True) -> Contender:
    def run(source: Path, dest: Path, workers: int) -> None:
        from headrace.building import build  # noqa: PLC0415 - imports are part of the measurement

        build(source, dest, format=target, workers=workers, verify=verify)

    return run


CONTENDERS: dict[str, Contender] = {
    BOUND: _bound,
    "Headrace, hri:dense": _headrace("hri:dense"),
    "Headrace, hri:dense, not verified": _headrace("hri:dense", verify=False),
    "Headrace, hri:fast": _headrace("hri:fast"),
    "Headrace, raw": _headrace("raw"),
    "Headrace, files as they are": _headrace("keep"),
}


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(name: str, source: Path, dest: Path, workers: int) -> dict[str, float]:
    """Run a contender in this process; starting its workers and syncing to disk count."""
    cpu, start = _cpu_seconds(), time.perf_counter()
    CONTENDERS[name](source, dest, workers)
    seconds, cpu = time.perf_counter() - start, _cpu_seconds() - cpu
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak / 1024}


if __name__ == "__main__":
    _, which, source_text, dest_text, workers_text = sys.argv
    print(json.dumps(measure(which, Path(source_text), Path(dest_text), int(workers_text))))
