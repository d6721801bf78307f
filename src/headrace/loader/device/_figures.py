# SPDX-License-Identifier: Apache-2.0
"""Counts and times of images that a device decodes, by format, like those of the engine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from headrace.loader.batch._stats import sum_counts

_NAMES = ("images", "bytes_read", "read_seconds", "decode_seconds", "transform_seconds", "cpu_seconds")


class Clock:
    """Wall time, and CPU time of this thread and its helper threads."""

    def __init__(self) -> None:
        self._started, self._cpu_started = time.perf_counter(), time.thread_time()
        self.seconds = self.own_cpu_seconds = self.cpu_seconds = 0.0

    def stop(self, helper_cpu_seconds: float = 0.0) -> None:
        self.seconds = time.perf_counter() - self._started
        self.own_cpu_seconds = time.thread_time() - self._cpu_started
        self.cpu_seconds = self.own_cpu_seconds + helper_cpu_seconds


class Figures:
    """Sums by format. Safe to use from many threads."""

    def __init__(self) -> None:
        self._formats: dict[str, dict[str, float]] = {}
        self._lock = Lock()
        self.own_cpu_seconds = 0.0  # the part of `cpu_seconds` that the thread which makes the batches has used

    def add(self, form: str, **amounts: float) -> None:
        """Add to the figures of a format."""
        with self._lock:
            own = self._formats.setdefault(form, dict.fromkeys(_NAMES, 0))
            for name, amount in amounts.items():
                own[name] += amount

    def spread(self, forms: Sequence[str], **amounts: float) -> None:
        """Add amounts for a group of images, divided equally among them."""
        for form, count in Counter(forms).items():
            self.add(form, **{name: amount * count / len(forms) for name, amount in amounts.items()})

    def count(self, forms: Sequence[str], name: str, counts: Sequence[int]) -> None:
        """Add one count per image."""
        sums: Counter[str] = Counter()
        for form, own in zip(forms, counts, strict=True):
            sums[form] += own
        for form, total in sums.items():
            self.add(form, **{name: total})

    def added_to(self, engine: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sum of the engine's figures and these. `decode` counts the host's time to prepare batches."""
        with self._lock:
            formats = {form: dict(own) for form, own in self._formats.items()}
        totals = {name: sum(own[name] for own in formats.values()) for name in _NAMES}
        return sum_counts(engine, {**totals, "images_on_device": totals["images"], "formats": formats})
