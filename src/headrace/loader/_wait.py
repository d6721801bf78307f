# SPDX-License-Identifier: Apache-2.0
"""Waiting that can be ended: by another thread, by Ctrl-C, by the end of the interpreter.

Finalizers run in any thread and in the midst of anything, also where that thread holds a lock. So one that took a lock
or waited for a thread could wait for ever. What they may do is set a `StopSign`, at which those who wait look often.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

# Short enough for Ctrl-C to feel immediate: a signal's handler runs only between two waits.
SLICE_SECONDS = 0.1


class Stopped(Exception):
    """Nobody wants any more what was being waited for, which is no error."""


class StopSign:
    """Says that nobody wants any more what is being done. Has no lock, unlike threading.Event: finalizers set it."""

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


def end_when_dropped(owner: object, end: Callable[[], None]) -> weakref.finalize[..., Any]:
    """Call `end` when `owner` is dropped in this process, unless the answer's `detach` was called before.

    Python drops what a signal's handler raises within a finalizer. So what ended as it should must run none: no
    `__del__`, and this only where it was not detached.
    """
    process = os.getpid()
    finalizer = weakref.finalize(owner, lambda: end() if os.getpid() == process else None)
    finalizer.atexit = False
    return finalizer


class Waitable(Protocol):
    """What gets done by others."""

    def wait(self, timeout: float) -> bool: ...


def wait_for(work: Waitable, stop: StopSign) -> None:
    """Wait until the work is done; raise Stopped if it is not wanted any more."""
    while not work.wait(SLICE_SECONDS):
        check(stop)


def check(stop: StopSign) -> None:
    if stop.is_set() or interpreter_ends():
        raise Stopped


def interpreter_ends() -> bool:
    """Whether the main thread has ended.

    The main thread itself does not ask: before Python 3.13 an interrupt within `is_alive` made it count as ended.
    """
    main = threading.main_thread()
    return threading.get_ident() != main.ident and not main.is_alive()
