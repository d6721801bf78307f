# SPDX-License-Identifier: Apache-2.0
"""Storage as slow as one wants it to be: for trying out what a slower disk would do."""

from __future__ import annotations

import time
from threading import Lock


class Pace:
    """Makes those who read wait, so that together they read no more than `rate` bytes a second; None is no limit."""

    def __init__(self, rate: float | None = None) -> None:
        self._lock = Lock()
        self._free_at = 0.0
        self.rate = rate

    def wait(self, n_bytes: int) -> None:
        """Wait as long as a device of that rate would take for so many bytes, after those that others asked for."""
        rate = self.rate
        if rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + n_bytes / rate
            pause = self._free_at - now
        time.sleep(pause)
