# SPDX-License-Identifier: Apache-2.0
"""What was read and laid out for a device, counted by format, as the engine counts what it does itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

_NAMES = ("images", "bytes_read", "read_seconds", "decode_seconds", "transform_seconds", "cpu_seconds")


class Figures:
    """Sums by format. Safe to use from many threads."""

    def __init__(self) -> None:
        self._formats: dict[str, dict[str, float]] = {}
        self._lock = Lock()
        self.own_cpu_seconds = 0.0
        """Of the thread that makes the batches, as far as it is among the sums; the helpers' are not in it."""

    def add(self, form: str, **amounts: float) -> None:
        """Add to the figures of a format."""
        with self._lock:
            own = self._formats.setdefault(form, dict.fromkeys(_NAMES, 0))
            for name, amount in amounts.items():
                own[name] += amount

    def spread(self, forms: Sequence[str], **amounts: float) -> None:
        """Add what images of these formats took together, as much for each."""
        for form, count in Counter(forms).items():
            self.add(form, **{name: amount * count / len(forms) for name, amount in amounts.items()})

    def count(self, forms: Sequence[str], name: str, counts: Sequence[int]) -> None:
        """Add what is known of each image."""
        sums: Counter[str] = Counter()
        for form, own in zip(forms, counts, strict=True):
            sums[form] += own
        for form, total in sums.items():
            self.add(form, **{name: total})

    def added_to(self, engine: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's figures with these; `decode` is here the host's time to lay batches out and to launch."""
        with self._lock:
            ours = {form: dict(own) for form, own in self._formats.items()}
        stats = dict(engine)
        for name in _NAMES:
            stats[name] = stats.get(name, 0) + sum(own[name] for own in ours.values())
        formats = {form: dict(own) for form, own in stats.get("formats", {}).items()}
        for form, own in ours.items():
            known = formats.setdefault(form, dict.fromkeys(_NAMES, 0))
            formats[form] = {name: known.get(name, 0) + own.get(name, 0) for name in dict.fromkeys((*known, *own))}
        stats["formats"] = formats
        stats["images_on_device"] = sum(int(own["images"]) for own in ours.values())
        return stats
