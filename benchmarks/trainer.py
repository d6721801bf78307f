# SPDX-License-Identifier: Apache-2.0
"""A trainer that takes its time and no core, for benchmarks of what feeds it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Trainer:
    """What stands for an accelerator: it works on a batch while the next is fetched, as kernels are launched ahead."""

    def __init__(self, step: float, now: Callable[[], float] = time.perf_counter) -> None:
        """Take `step` seconds a batch, by the clock that `now` reads."""
        self._step, self._now, self._free = step, now, 0.0

    def take(self, batch: Any) -> None:
        """Hand over a batch; wait until the one before it is done."""
        del batch
        begins = max(self._now(), self._free)
        self._free = begins + self._step
        while (left := begins - self._now()) > 0:
            time.sleep(left)
