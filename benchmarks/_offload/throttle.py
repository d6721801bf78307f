# SPDX-License-Identifier: Apache-2.0
"""Run an offload worker with a share of a core, as if the core were slower: `throttle.py SHARE DATASET EXCHANGE`.

The work runs in a child. Its parent looks at the child's CPU clock every few milliseconds, stops the child when it is
ahead of its share and lets it go on when the share has caught up, all its threads at once. A run and a stop take some
12 ms together at half a core and 48 ms at an eighth, so that a batch takes proportionally longer instead of coming in
bursts. What a slice takes too much the next stop is longer for, so the share is exact in the mean, whoever else uses
the machine. Time that the child does not use is not saved up. The parent itself takes about 1 % of a core beside.

Stopping a process needs no rights, unlike control groups, and pinches C++ threads as well as Python's.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

LOOK_SECONDS = 0.006
"""How often the child's clock is read while it runs."""
SAVED_SECONDS = 0.02
"""How much of the wall clock's time a child that was idle may make up for."""
_SIGNAL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1


def ending_signals() -> list[signal.Signals]:
    """Give the signals that end a worker; not what its caller lets it ignore, as `nohup` does."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


class CpuPace:
    """The arithmetic: from CPU seconds used and wall seconds gone by, how long to stop. Pure."""

    def __init__(self, rate: float, now: float, used: float) -> None:
        """Allow `rate` CPU seconds a second, from `now` on."""
        self._rate = rate
        self._now, self._used = now, used
        self._credit = 0.0  # CPU seconds that may be used at once; below 0 it is in debt

    def pause(self, now: float, used: float) -> float:
        """Give the seconds to stop for; 0 or less lets it run on."""
        self._credit += self._rate * (now - self._now) - (used - self._used)
        self._credit = min(self._credit, self._rate * SAVED_SECONDS)
        self._now, self._used = now, used
        return -self._credit / self._rate


def run_throttled(rate: float, work: Callable[[], int]) -> int:
    """Run `work` in a child that gets `rate` CPU seconds a second in all its threads, and give its exit code.

    Call it before any thread is started. What should end it is passed on; the child ends with its parent.
    """
    if not sys.platform.startswith("linux"):
        raise RuntimeError("a process can be limited to a share of a core on Linux only")
    child = os.fork()
    if child == 0:
        _be_child(work)
    received: list[int] = []
    previous = {number: signal.signal(number, lambda number, _: received.append(number)) for number in ending_signals()}
    try:
        return _keep_pace(child, rate, received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _be_child(work: Callable[[], int]) -> None:
    code = 1
    try:
        # A stopped child whose parent was killed would stay stopped for ever.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - nothing above this frame is the child's
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _keep_pace(child: int, rate: float, received: list[int]) -> int:
    pace = CpuPace(rate, time.monotonic(), _cpu_seconds(child))
    ending = False
    while True:
        while received:
            os.kill(child, received.pop())
            ending = True  # it is not held up any more: with a hundredth of a core it would take minutes to end
        number, status = os.waitpid(child, os.WNOHANG)
        if number == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        pause = pace.pause(time.monotonic(), _cpu_seconds(child))
        if pause <= 0 or ending:
            time.sleep(LOOK_SECONDS)
            continue
        os.kill(child, signal.SIGSTOP)
        try:
            _sleep(max(pause, LOOK_SECONDS), received)
        finally:
            os.kill(child, signal.SIGCONT)


def _sleep(seconds: float, received: list[int]) -> None:
    """Sleep until the time is over or a signal has come, which `time.sleep` sleeps through."""
    until = time.monotonic() + seconds
    while not received and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _SIGNAL_SECONDS))


def _cpu_seconds(process: int) -> float:
    """CPU seconds of another process' threads, to the nanosecond: what `clock_getcpuclockid` of the C library names."""
    return time.clock_gettime((~process << 3) | 2)


def _serve(arguments: list[str]) -> int:
    from headrace.cli import app  # noqa: PLC0415 - in the child only

    app(["offload", *arguments], standalone_mode=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_throttled(float(sys.argv[1]), lambda: _serve(sys.argv[2:])))
