# SPDX-License-Identifier: Apache-2.0
"""A trainer that takes its time and no core, for benchmarks of what feeds it."""

from __future__ import annotations

import time
from typing import Any


class Trainer:
    """What stands for an accelerator: it works on a batch while the next is fetched, as kernels are launched ahead."""

    def __init__(self, step: float) -> None:
        """Take `step` seconds a batch."""
        self._step, self._free = step, 0.0

    def take(self, batch: Any) -> None:
        """Hand over a batch; wait until the one before it is done."""
        del batch
        begins = max(time.perf_counter(), self._free)
        self._free = begins + self._step
        while (left := begins - time.perf_counter()) > 0:
            time.sleep(left)
