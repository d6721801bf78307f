# SPDX-License-Identifier: Apache-2.0
"""Threads that can always be stopped: by `close`, by Ctrl-C, by a finalizer, and when the interpreter exits.

Finalizers run in any thread at any point, also while that thread holds a lock. A finalizer that takes a lock or joins
a thread can therefore deadlock. It may only set a `StopSign`, which every waiting thread checks often.

`Thread.start` waits in Python code until the new thread runs. Ctrl-C at that point can leave a lock held, so that the
new thread never starts. Signal handlers run only in the main thread. So a helper thread starts all other threads, and
the main thread waits for it in C. The helper also keeps the `Thread` objects for a while: dropping the last reference
to one runs code of `threading`, where an interrupt would be lost.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, TypeVar

# Short enough for Ctrl-C to feel immediate: signal handlers run only between two waits.
SLICE_SECONDS = 0.1

_T = TypeVar("_T")
_Answer: TypeAlias = "queue.SimpleQueue[BaseException | None]"


class Stopped(Exception):
    """The result is no longer needed. This is not an error."""


class StopSign:
    """A flag that tells threads to stop. It has no lock, unlike threading.Event, so finalizers may set it."""

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


class Waitable(Protocol):
    """Work that other threads do."""

    def wait(self, timeout: float) -> bool: ...


def wait_for(work: Waitable, stop: StopSign) -> None:
    """Wait until the work is done. Raise Stopped if the stop sign is set first."""
    while not work.wait(SLICE_SECONDS):
        check(stop)


def take_item(items: queue.SimpleQueue[_T], stop: StopSign) -> _T:
    """Wait for an item of a queue. Raise Stopped if the stop sign is set first."""
    while True:
        check(stop)
        with contextlib.suppress(queue.Empty):
            return items.get(timeout=SLICE_SECONDS)


def check(stop: StopSign) -> None:
    """Raise Stopped if the stop sign is set or the interpreter is exiting."""
    if stop.is_set() or interpreter_exits():
        raise Stopped


def interpreter_exits() -> bool:
    """Return whether the main thread has ended.

    In the main thread this is always False: before Python 3.13 an interrupt within `is_alive` could make it look ended.
    """
    main = threading.main_thread()
    return threading.get_ident() != main.ident and not main.is_alive()


def call_when_dropped(owner: object, function: Callable[[], None]) -> weakref.finalize[..., Any]:
    """Call the function when `owner` is dropped in this process. Call `detach` on the result to cancel this.

    Python discards exceptions that a signal handler raises within a finalizer. So an object that was closed properly
    must not run one: it has no `__del__`, and it detaches this.
    """
    process = os.getpid()
    finalizer = weakref.finalize(owner, lambda: function() if os.getpid() == process else None)
    finalizer.atexit = False
    return finalizer


def start_thread(target: Callable[..., None], args: tuple[Any, ...], name: str) -> threading.Thread:
    """Start a thread. If this is interrupted, the thread may be running: it needs its own way to be stopped."""
    thread = threading.Thread(target=target, args=args, name=name)
    if threading.current_thread() is not threading.main_thread():
        thread.start()
        return thread
    answer: _Answer = queue.SimpleQueue()
    _starter_requests(os.getpid()).put((thread, answer))
    error = answer.get()
    if error is not None:
        raise error
    return thread


@lru_cache(1)
def _starter_requests(process: int) -> queue.SimpleQueue[tuple[threading.Thread, _Answer]]:
    """Return the requests of this process's helper thread: threads do not survive a fork."""
    del process
    requests: queue.SimpleQueue[tuple[threading.Thread, _Answer]] = queue.SimpleQueue()
    threading.Thread(target=_start_requested, args=(requests,), name="thread-starter", daemon=True).start()
    return requests


def _start_requested(requests: queue.SimpleQueue[tuple[threading.Thread, _Answer]]) -> None:
    kept: list[threading.Thread] = []
    while True:
        thread, answer = requests.get()
        kept = [each for each in kept if each.is_alive()]
        kept.append(thread)
        try:
            thread.start()
        except BaseException as error:  # noqa: BLE001 - raised by `start_thread`
            answer.put(error)
        else:
            answer.put(None)
        del thread, answer
