# SPDX-License-Identifier: Apache-2.0
"""The stages of Headrace's own loader, from the clocks that it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.loader import Loader, compiled_transform
from headrace.measuring import Positions
from headrace.profiling._measurements import Rate, Stage, StageName, StagePlace
from headrace.profiling.stages._clocks import ClockedRun, Part
from headrace.profiling.stages._runs import run_loader
from headrace.records import Dataset
from headrace.transforms import Compiled

_ROUNDS = 1000
"""How often an epoch repeats the samples, so that threads always have work."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """A Headrace loader to measure, and some samples of its dataset."""

    loader: Loader
    dataset: Dataset
    positions: Positions
    """Samples that are in the page cache."""

    @property
    def compiled(self) -> Compiled:
        return compiled_transform(self.loader)

    @property
    def threads(self) -> int:
        return max(1, self.loader.num_workers)

    @property
    def image_fields(self) -> list[str]:
        return [name for name in self.loader.fields if self.dataset.fields[name] in ("image", "mask")]

    @property
    def images_per_sample(self) -> int:
        return max(1, len(self.image_fields))

    def bytes_per_sample(self) -> float | None:
        """Mean bytes that the loader has read per sample so far."""
        stats = self.loader.stats()
        samples = stats.images / self.images_per_sample
        return stats.bytes_read / samples if samples and stats.bytes_read else None

    def run_from_memory(self, threads: int, seconds: float) -> ClockedRun:
        """Run the same loader with the samples in memory, and without the user's functions; see `core_stages`."""
        with self._from_memory(threads) as loader:
            run = run_loader(loader, seconds=seconds)
            stats = loader.stats()
        busy = stats.busy_seconds
        transforms = ", ".join(describe_transforms(self.compiled)) or "copy"
        parts: dict[Part, float] = {
            ("read", "records"): busy.read,
            **{("decode", name): each.decode_seconds for name, each in stats.formats.items()},
            ("transform", transforms): busy.transform,
        }
        return ClockedRun(run, parts)

    def _from_memory(self, threads: int) -> Loader:
        loader, compiled = self.loader, self.compiled
        return Loader(
            self.dataset,
            indices=np.tile(self.positions, _ROUNDS),
            batch_size=min(loader.batch_size, len(self.positions)),
            seed=loader.seed,
            transform=list(compiled.transforms),
            fields=self.image_fields,
            num_workers=threads,
            batches_ahead=4,
            output="numpy",
            dtype=compiled.dtype,
            layout=compiled.layout,  # type: ignore[arg-type] # a layout
            color=compiled.color,  # type: ignore[arg-type] # a color
            approximate_jpeg=compiled.approximate_jpeg,
            on_error="skip",
        )

    def thread_stages(self) -> list[Stage]:
        """Return the stages of one thread for all workers: the user's functions, batches, and copies to the device."""
        loader, compiled, stats = self.loader, self.compiled, self.loader.stats()
        functions, collate = (*compiled.per_sample, *compiled.per_batch), loader.collate_fn
        own_thread = bool(functions or collate or loader.device)
        place: StagePlace = "thread" if own_thread else "trainer"
        busy, batching = stats.busy_seconds, function_name(collate) if collate else "views of one buffer"
        found: tuple[tuple[StageName, StagePlace, float, str], ...] = (
            ("transform", place, busy.callables if functions else 0.0, ", ".join(map(function_name, functions))),
            ("batch", place, busy.batch - busy.callables, batching),
            ("transfer", "link", busy.transfer, f"to {loader.device}"),
        )
        return [
            Stage(name=name, place=where, rates=(Rate(cores=1, rate=stats.samples / seconds),), detail=detail)
            for name, where, seconds, detail in found
            if seconds > 0 and stats.samples
        ]


def describe_transforms(compiled: Compiled) -> tuple[str, ...]:
    """One line each: the operation and its size, or the function's name."""
    lines = []
    for item in compiled.to_json(callables=True):
        size = item.get("size")
        shape = " x ".join(map(str, size)) if isinstance(size, list | tuple) else "" if size is None else str(size)
        lines.append(" ".join(filter(None, (str(item.get("callable") or item["op"]), shape))))
    return tuple(lines)


def function_name(function: Any) -> str:
    """Return the name of a function, or the names of the parts of a composition."""
    parts = getattr(function, "transforms", None)
    if isinstance(parts, list | tuple):
        return ", ".join(map(function_name, parts))
    return getattr(function, "__qualname__", None) or type(function).__name__
