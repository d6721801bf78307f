# SPDX-License-Identifier: Apache-2.0
"""Call the user's functions with each sample of a batch, in threads; the order of the samples is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

from headrace.loader._threads import SLICE_SECONDS, StopSign, check

# More chunks than threads, so that one slow sample does not delay a large chunk.
_CHUNKS_PER_THREAD = 4


class SampleCallables:
    """Functions that are applied to each sample, one after the other."""

    def __init__(self, functions: Sequence[Callable[[Any], Any]], threads: int) -> None:
        self._functions = tuple(functions)
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def run(self, samples: list[Any], row_name: Callable[[int], str], stop: StopSign) -> list[Any]:
        """Return the results. Raises Stopped if `stop` is set; an exception gets a note with the sample's name."""
        if self._threads == 1 or len(samples) == 1:
            return self._apply(samples, 0, row_name, stop)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="headrace-callable")
        size = max(1, len(samples) // (_CHUNKS_PER_THREAD * self._threads))
        pool = self._pool
        return _results(
            [
                pool.submit(self._apply, samples[start : start + size], start, row_name, stop)
                for start in range(0, len(samples), size)
            ],
            stop,
        )

    def _apply(self, samples: list[Any], start: int, row_name: Callable[[int], str], stop: StopSign) -> list[Any]:
        results = []
        for position, sample in enumerate(samples, start):
            check(stop)
            result = sample
            try:
                for function in self._functions:
                    result = function(result)
            except Exception as error:
                error.add_note(f"raised by a transform of {row_name(position)}")
                raise
            results.append(result)
        return results

    def close(self) -> None:
        """End the threads and wait for functions that are running."""
        pool, self._pool = self._pool, None
        if pool is not None:
            # A function may close its own loader. It runs in a thread of the pool, which cannot wait for itself.
            inside = threading.current_thread().name.startswith("headrace-callable")
            pool.shutdown(wait=not inside, cancel_futures=True)

    def drop(self) -> None:
        """Forget the threads without waiting; they end by themselves. A forked child does not have them."""
        self._pool = None


def _results(chunks: list[Future[list[Any]]], stop: StopSign) -> list[Any]:
    """Return the results of all chunks in order, or raise the first chunk's exception."""
    _wait(chunks, stop)
    ended = (chunk for chunk in chunks if chunk.done() and not chunk.cancelled())
    failure = next((error for error in (chunk.exception() for chunk in ended) if error is not None), None)
    if failure is None:
        return [sample for chunk in chunks for sample in chunk.result()]
    try:
        raise failure
    finally:
        # Its traceback refers to this frame, and the chunks refer to the exception: avoid a reference cycle.
        del failure, chunks, ended


def _wait(chunks: list[Future[list[Any]]], stop: StopSign) -> None:
    pending: set[Future[list[Any]]] = set(chunks)
    while pending and not stop.is_set():
        done, pending = wait(pending, SLICE_SECONDS, FIRST_EXCEPTION)
        if any(chunk.exception() is not None for chunk in done):
            break
    for chunk in pending:
        chunk.cancel()
    check(stop)
