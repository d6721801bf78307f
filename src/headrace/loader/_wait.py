# SPDX-License-Identifier: Apache-2.0
"""Waiting that can be ended: by another thread, by Ctrl-C, by the end of the interpreter."""

from __future__ import annotations

import threading
from typing import Protocol

# Short enough for Ctrl-C to feel immediate: a signal's handler runs only between two waits.
SLICE_SECONDS = 0.1


class Stopped(Exception):
    """Nobody wants any more what was being waited for, which is no error."""


class Waitable(Protocol):
    """What gets done by others."""

    def wait(self, timeout: float) -> bool: ...


def wait_for(work: Waitable, stop: threading.Event) -> None:
    """Wait until the work is done; raise Stopped if it is not wanted any more."""
    while not work.wait(SLICE_SECONDS):
        check(stop)


def check(stop: threading.Event) -> None:
    if stop.is_set() or not threading.main_thread().is_alive():
        raise Stopped
