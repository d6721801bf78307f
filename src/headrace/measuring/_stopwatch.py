# SPDX-License-Identifier: Apache-2.0
"""How many times a second something can be done, by one thread to all: the one stopwatch of all stages.

Other programs only ever slow a measurement down. So the budget is cut into short repeats and the best one counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

REPEATS = 3
# Below this a repeat says more about the scheduler than about the work.
MIN_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A point of a scaling curve."""

    cores: int
    rate: float
    """Images per second, all cores together."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How fast something was done."""

    rate: float
    """Calls a second, all threads together."""
    cpu_seconds: float
    """Of a call."""
    calls: int


def timed(
    work: Callable[[int], Any], count: int, *, workers: int = 1, seconds: float = 1.0, repeats: int = REPEATS
) -> Timing:
    """Call `work` with 0 to `count - 1`, over and over, in threads, for about so long; the first calls do not count.

    Args:
        work: Does one image, given its number; results are thrown away.
        count: How many different images there are.
        workers: Threads that work at a time, each on numbers of its own.
        seconds: For all repeats together. Each does at least one image a thread.
        repeats: Of which the fastest counts.

    """
    for number in range(min(workers, count)):
        work(number)  # imports, buffers, and page faults of the first time
    slot = max(MIN_SECONDS, seconds / repeats)
    return max((_once(work, count, workers, slot) for _ in range(repeats)), key=lambda timing: timing.rate)


def scaling_of(
    work: Callable[[int], Any], count: int, *, cores: Sequence[int], seconds: float
) -> tuple[tuple[Rate, ...], float]:
    """Give the rates from one core to all, and the CPU time of one call alone on its core."""
    timings = {n: timed(work, count, workers=n, seconds=seconds / len(cores)) for n in sorted(set(cores))}
    rates = tuple(Rate(cores=n, rate=timing.rate) for n, timing in timings.items())
    return rates, next(iter(timings.values())).cpu_seconds


def pass_over(work: Callable[[int], Any], count: int, *, workers: int) -> float:
    """Do each of `count` images once, in threads, and give images a second: for what is only new once."""

    def share(worker: int, stop: threading.Event) -> None:
        for number in range(worker, count, workers):
            if stop.is_set():
                return
            work(number)

    begun = time.perf_counter()
    _in_threads(workers, share)
    return count / max(time.perf_counter() - begun, 1e-9)


def _once(work: Callable[[int], Any], count: int, workers: int, seconds: float) -> Timing:
    calls, cpu = [0] * workers, [0.0] * workers
    begun = time.perf_counter()
    end = begun + seconds

    def repeat(worker: int, stop: threading.Event) -> None:
        cpu_begun, number = time.thread_time(), worker
        while True:
            work(number % count)
            calls[worker] += 1
            number += workers
            if time.perf_counter() >= end or stop.is_set():
                break
        cpu[worker] = time.thread_time() - cpu_begun

    _in_threads(workers, repeat)
    elapsed = max(time.perf_counter() - begun, 1e-9)
    return Timing(sum(calls) / elapsed, sum(cpu) / sum(calls), sum(calls))


def _in_threads(workers: int, work: Callable[[int, threading.Event], None]) -> None:
    """Run `work` with 0 to `workers - 1` at once; what any of them raises is raised here, and Ctrl-C ends them all."""
    stop = threading.Event()
    if workers == 1:
        work(0, stop)
        return
    failures: list[BaseException] = []

    def guarded(worker: int) -> None:
        try:
            work(worker, stop)
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=(n,), name="headrace-profile") for n in range(workers)]
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
