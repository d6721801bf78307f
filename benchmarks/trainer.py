# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a GPU: it takes time per batch and no CPU."""

from __future__ import annotations

import time
from typing import Any


class Trainer:
    """Works on one batch while the next is loaded, as CUDA kernels run while Python goes on."""

    def __init__(self, step_seconds: float) -> None:
        self._step, self._free_at = step_seconds, 0.0

    def take(self, batch: Any) -> None:
        """Start on this batch as soon as the one before is done; return then."""
        del batch
        start = max(time.perf_counter(), self._free_at)
        self._free_at = start + self._step
        while (left := start - time.perf_counter()) > 0:
            time.sleep(left)
