# SPDX-License-Identifier: Apache-2.0
"""How many times per second a function can be called, on one thread or several.

Other load on the machine only ever slows a measurement down. So the time is divided into repeats, and the best counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REPEATS = 3
# A shorter repeat depends on the scheduler more than on the work.
MIN_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A point of a scaling curve."""

    cores: int
    rate: float  # images per second, all cores together


@dataclass(frozen=True, slots=True)
class Timing:
    """The rate of a function."""

    rate: float  # calls per second, all threads together
    cpu_seconds: float  # CPU seconds per call


def timed(
    work: Callable[[int], Any], count: int, *, workers: int = 1, seconds: float = 1.0, repeats: int = REPEATS
) -> Timing:
    """Call `work` with 0 to `count - 1` repeatedly, and return the rate of the fastest repeat.

    The numbers are divided among `workers` threads. All repeats together take about `seconds`; in each, every thread
    calls `work` at least once. The first calls are not measured.
    """
    for number in range(min(workers, count)):
        work(number)  # imports, buffers and page faults of the first call
    slot = max(MIN_SECONDS, seconds / repeats)
    return max((_once(work, count, workers, slot) for _ in range(repeats)), key=lambda timing: timing.rate)


def pass_over(work: Callable[[int], Any], count: int, *, workers: int) -> float:
    """Call `work` once with each of 0 to `count - 1`, in threads, and return calls per second."""

    def share(worker: int, stop: threading.Event) -> None:
        for number in range(worker, count, workers):
            if stop.is_set():
                return
            work(number)

    started = time.perf_counter()
    _in_threads(workers, share)
    return count / max(time.perf_counter() - started, 1e-9)


def _once(work: Callable[[int], Any], count: int, workers: int, seconds: float) -> Timing:
    calls, cpu = [0] * workers, [0.0] * workers
    started = time.perf_counter()
    end = started + seconds

    def repeat(worker: int, stop: threading.Event) -> None:
        cpu_started, number = time.thread_time(), worker
        while True:
            work(number % count)
            calls[worker] += 1
            number += workers
            if time.perf_counter() >= end or stop.is_set():
                break
        cpu[worker] = time.thread_time() - cpu_started

    _in_threads(workers, repeat)
    elapsed = max(time.perf_counter() - started, 1e-9)
    return Timing(sum(calls) / elapsed, sum(cpu) / sum(calls))


def _in_threads(workers: int, work: Callable[[int, threading.Event], None]) -> None:
    """Run `work` with 0 to `workers - 1` in threads; raise the first error of any, and stop all of them on Ctrl-C."""
    stop = threading.Event()
    if workers == 1:
        work(0, stop)
        return
    failures: list[BaseException] = []

    def guarded(worker: int) -> None:
        try:
            work(worker, stop)
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=(n,), name="headrace-measure") for n in range(workers)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if failures:
        raise failures[0]
