# SPDX-License-Identifier: Apache-2.0
"""The pixels of a batch that the offload worker should have made, and what becomes of them if it has not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from headrace.loader.supply import PixelBatch, Stack
from headrace.offload.host._reader import PreparedBatches

Fate: TypeAlias = Literal["near", "late", "lost", "bad"]

MOST_SECONDS = 30.0
MIN_SECONDS = 0.5


def bound_seconds(near_seconds: float | None) -> float:
    """How long a prepared batch is waited for at its slot: twice the time it takes, but 0.5 s to 30 s."""
    return min(MOST_SECONDS, max(MIN_SECONDS, 2 * (near_seconds or 0.0)))


class PreparedPixels:
    """A batch of pixels from the offload worker. One that is late, lost or bad is made by the host, for the same slot.

    It is waited for no longer than `bound`, from when it is first waited for; and not at all if it is known to be bad
    or the offload worker to be gone.
    """

    def __init__(self, near: PreparedBatches, number: int, bound: float, redo: Callable[[], PixelBatch]) -> None:
        self._near, self._number, self._bound, self._redo = near, number, bound, redo
        self._begun: float | None = None
        self._own: PixelBatch | None = None
        self.fate: Fate = "near"
        self.waited = 0.0
        """How long the offload worker was waited for."""

    def wait(self, timeout: float) -> bool:
        if self._own is not None:
            return self._own.wait(timeout)
        if self._begun is None:
            self._begun = time.perf_counter()
        left = self._begun + self._bound - time.perf_counter()
        found = self._near.find(self._number, 0.0 if self._near.lost else max(0.0, min(timeout, left)))
        self.waited = time.perf_counter() - self._begun
        if found == "ready":
            return True
        if found == "bad":
            self.fate = "bad"
        elif self._near.lost:
            self.fate = "lost"
        elif self.waited >= self._bound:
            self.fate = "late"
        else:
            return False
        self._near.skip(self._number)
        self._own = self._redo()
        return self._own.wait(0.0)

    def take(self) -> list[Stack]:
        return self._near.take(self._number) if self._own is None else self._own.take()

    def failures(self) -> list[tuple[int, int, int, str, str]]:
        return [] if self._own is None else self._own.failures()
