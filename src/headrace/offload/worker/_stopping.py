# SPDX-License-Identifier: Apache-2.0
"""Ends a worker on SIGTERM, SIGINT and SIGHUP, whatever it is doing at that moment.

Python runs signal handlers in the main thread, between two instructions. A thread that is blocked in a system call, for
example on a network mount whose server is gone, never runs them. So the signal wakes another thread, which asks the
worker to stop and ends the process if it has not stopped within `GRACE_SECONDS`, or when the signal is sent again.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

GRACE_SECONDS = 10.0
_SAME_SECONDS = 1.0
_ENDED = b"\0"  # not the number of a signal


def _ending_signals() -> list[signal.Signals]:
    """Return the signals that end a worker, except those that are ignored, as under `nohup`."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


class StopOnSignals:
    """Calls `stop` when the process is asked to end. A context manager, for the main thread.

    If the worker does not end within `GRACE_SECONDS`, the process exits with code 128 plus the number of the signal.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._numbers = _ending_signals()
        self.received: signal.Signals | None = None

    def __enter__(self) -> Self:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._thread = threading.Thread(target=self._watch, name="headrace-signals", daemon=True)
        self._thread.start()
        self._wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._handlers = [signal.signal(number, _wake) for number in self._numbers]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(self._numbers, self._handlers, strict=True):
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.write(self._write_end, _ENDED)
        self._thread.join()
        os.close(self._read_end)
        os.close(self._write_end)

    def _watch(self) -> None:
        number = self._next_signal(None)
        if number is None:
            return
        self.received = number
        self._stop()
        asked = time.monotonic()
        while (left := asked + GRACE_SECONDS - time.monotonic()) > 0:
            again = self._next_signal(left)
            if self._has_ended:
                return
            # Ctrl-C may arrive twice at once: from the terminal, and from a parent process that passes it on.
            if again is not None and time.monotonic() - asked > _SAME_SECONDS:
                break
        sys.stderr.write(f"stopped by {number.name} before the worker had ended\n")
        sys.stderr.flush()
        os._exit(128 + number)

    def _next_signal(self, timeout: float | None) -> signal.Signals | None:
        """Wait for one of the signals; None if the worker has ended or after `timeout` seconds."""
        self._has_ended = False
        while select.select([self._read_end], [], [], timeout)[0]:
            byte = os.read(self._read_end, 1)
            if byte == _ENDED:
                self._has_ended = True
                return None
            if byte[0] in self._numbers:
                return signal.Signals(byte[0])
        return None


def _wake(number: int, frame: Any) -> None:
    """Do nothing: Python writes the number of a signal to the wakeup descriptor only if it has a handler."""
    del number, frame
