# SPDX-License-Identifier: Apache-2.0
"""Waiting that can be ended: by another thread, by Ctrl-C, by the end of the interpreter.

Finalizers run in any thread and in the midst of anything, also where that thread holds a lock. So one that took a lock
or waited for a thread could wait for ever. What they may do is set a `StopSign`, at which those who wait look often.
"""

from __future__ import annotations

import threading
from typing import Protocol

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


class Waitable(Protocol):
    """What gets done by others."""

    def wait(self, timeout: float) -> bool: ...


def wait_for(work: Waitable, stop: StopSign) -> None:
    """Wait until the work is done; raise Stopped if it is not wanted any more."""
    while not work.wait(SLICE_SECONDS):
        check(stop)


def check(stop: StopSign) -> None:
    if stop.is_set() or not threading.main_thread().is_alive():
        raise Stopped
