# SPDX-License-Identifier: Apache-2.0
"""Headrace's own loader, opened up: what it is made of, and loaders over a few of its samples that do a part of it.

They read what lies in memory, in an epoch so long that threads never run dry at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.loader import Loader, compiled_transform, storage_limit
from headrace.measuring import Positions
from headrace.records import Dataset
from headrace.transforms import Compiled, PerBatch

_ROUNDS = 1000
"""Times that an epoch goes through the samples."""


@dataclass(frozen=True, slots=True)
class Inside:
    """What the profile must know of a loader to take it apart."""

    compiled: Compiled
    threads: int
    collate_fn: Callable[[list[Any]], Any] | None
    output: str
    fields: tuple[str, ...]
    storage_rate: float | None
    direct_io: bool
    device: str | None

    @classmethod
    def of(cls, loader: Loader) -> Inside:
        return cls(
            compiled=compiled_transform(loader),
            threads=max(1, loader.num_workers),
            collate_fn=loader.collate_fn,
            output=loader.output,
            fields=loader.fields,
            storage_rate=storage_limit(loader),
            direct_io=loader.direct_io,
            device=loader.device,
        )


@dataclass(frozen=True, slots=True)
class Instrument:
    """A loader to measure, and the loaders over a few of its samples that measure it."""

    loader: Loader
    dataset: Dataset
    inside: Inside
    positions: Positions
    """Of samples of the dataset, which lie in memory."""

    @property
    def pixels(self) -> tuple[str, ...]:
        """The fields that hold images or masks."""
        return tuple(name for name in self.inside.fields if self.dataset.fields[name] in ("image", "mask"))

    @property
    def format_names(self) -> str:
        """The formats of those fields, most frequent first."""
        counts: Counter[str] = Counter()
        for name in self.pixels:
            counts.update(self.dataset.formats.get(name, {}))
        return ", ".join(name for name, _ in counts.most_common())

    def bytes_per_sample(self) -> float | None:
        """What the loader has read for a sample so far."""
        stats = self.loader.stats()
        samples = stats.images / max(1, len(self.pixels) * self.inside.compiled.views)
        return stats.bytes_read / samples if samples and stats.bytes_read else None

    def whole(self) -> Loader:
        """Do all that the loader does, but from memory."""
        compiled = self.inside.compiled
        functions = [*compiled.per_sample, *map(PerBatch, compiled.per_batch)]
        return self._make(transform=[*compiled.transforms, *functions], rounds=_ROUNDS)

    def core(self, threads: int) -> Loader:
        """Do only what C++ does, with so many threads."""
        return self._make(
            fields=self.pixels, num_workers=threads, output="numpy", collate_fn=None, batches_ahead=4, rounds=_ROUNDS
        )

    def samples(self) -> Any:
        """Give a batch of which the user's functions have seen nothing."""
        with self._make(collate_fn=None) as loader:
            return next(iter(loader))

    def batch(self) -> Any:
        """Give a batch as the functions of whole batches get it."""
        compiled = self.inside.compiled
        with self._make(transform=[*compiled.transforms, *compiled.per_sample]) as loader:
            return next(iter(loader))

    def _make(self, *, rounds: int = 1, **changes: Any) -> Loader:
        inside, compiled = self.inside, self.inside.compiled
        options: dict[str, Any] = {
            "transform": list(compiled.transforms),
            "fields": inside.fields,
            "num_workers": inside.threads,
            "output": inside.output,
            "collate_fn": inside.collate_fn,
            "dtype": compiled.dtype,
            "layout": compiled.layout,
            "color": compiled.color,
            "approximate_jpeg": compiled.approximate_jpeg,
            "on_error": "skip",
        }
        return Loader(
            self.dataset,
            indices=np.tile(self.positions, rounds),
            batch_size=self.batch_size,
            seed=self.loader.seed,
            **{**options, **changes},
        )

    @property
    def batch_size(self) -> int:
        return min(self.loader.batch_size, len(self.positions))


def describe_transforms(compiled: Compiled) -> tuple[str, ...]:
    """One line each: the operation and its size, or the function's name."""
    lines = []
    for item in compiled.to_json(callables=True):
        size = item.get("size")
        shape = " x ".join(map(str, size)) if isinstance(size, list | tuple) else "" if size is None else str(size)
        lines.append(" ".join(filter(None, (str(item.get("callable") or item["op"]), shape))))
    return tuple(lines)
