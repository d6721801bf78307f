# SPDX-License-Identifier: Apache-2.0
"""The user's own functions, run on the samples of a batch in threads; the order of the samples is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, TypeAlias

from headrace.loader._wait import SLICE_SECONDS, StopSign, check

PerSample: TypeAlias = Callable[[Any], Any]

# More pieces than threads, so that one slow sample does not hold up a whole share.
_PIECES_A_THREAD = 4


class SampleCallables:
    """Functions that are called with each sample in turn, each with what the one before gave."""

    def __init__(self, functions: Sequence[PerSample], threads: int) -> None:
        self._functions = tuple(functions)
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def __bool__(self) -> bool:
        return bool(self._functions)

    def run(self, samples: list[Any], name: Callable[[int], str], stop: StopSign) -> list[Any]:
        """Give what the functions make of the samples.

        Args:
            samples: The samples of a batch.
            name: Gives a sample's name by its place in the batch, for the note on an exception.
            stop: Ends the waiting early, with `Stopped`.

        """
        if self._threads == 1 or len(samples) == 1:
            return self._apply(samples, 0, name, stop)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="headrace-callable")
        size = max(1, len(samples) // (_PIECES_A_THREAD * self._threads))
        pool = self._pool
        return _gather(
            [
                pool.submit(self._apply, samples[start : start + size], start, name, stop)
                for start in range(0, len(samples), size)
            ],
            stop,
        )

    def _apply(self, samples: list[Any], start: int, name: Callable[[int], str], stop: StopSign) -> list[Any]:
        results = []
        for position, sample in enumerate(samples, start):
            check(stop)
            result = sample
            try:
                for function in self._functions:
                    result = function(result)
            except Exception as error:
                error.add_note(f"raised by a transform of {name(position)}")
                raise
            results.append(result)
        return results

    def close(self) -> None:
        """End the threads; a function that is running is waited for."""
        pool, self._pool = self._pool, None
        if pool is not None:
            # A function may close its own loader, in one of the pool's threads, which cannot wait for itself.
            inside = threading.current_thread().name.startswith("headrace-callable")
            pool.shutdown(wait=not inside, cancel_futures=True)

    def drop(self) -> None:
        """Let go of the threads without waiting; they end by themselves. A forked child does not even have them."""
        self._pool = None


def _gather(pieces: list[Future[list[Any]]], stop: StopSign) -> list[Any]:
    """Give the results of all pieces in order, or raise what the first of those that failed raised."""
    _wait(pieces, stop)
    failure = _first_failure(pieces)
    if failure is None:
        return [sample for piece in pieces for sample in piece.result()]
    try:
        raise failure
    finally:
        # Its traceback has this frame, and the pieces have the exception: a ring that would keep all of them alive.
        del failure, pieces


def _wait(pieces: list[Future[list[Any]]], stop: StopSign) -> None:
    pending: set[Future[list[Any]]] = set(pieces)
    while pending and not stop.is_set():
        done, pending = wait(pending, SLICE_SECONDS, FIRST_EXCEPTION)
        if any(piece.exception() is not None for piece in done):
            break
    for piece in pending:
        piece.cancel()
    check(stop)


def _first_failure(pieces: list[Future[list[Any]]]) -> BaseException | None:
    ended = (piece for piece in pieces if piece.done() and not piece.cancelled())
    return next((error for error in (piece.exception() for piece in ended) if error is not None), None)
