# SPDX-License-Identifier: Apache-2.0
"""The stages of Headrace's own loader, measured with loaders over a few samples that do only a part of the work.

Decoding and the declarative transforms run fused in C++, where the crop decides what is decoded. So they are measured
where they run: a loader over a few images in memory, with one thread to all, whose own clocks divide the time. The
user's functions are called alone, on samples that were made before.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.loader import Loader, LoaderStats, compiled_transform
from headrace.measuring import Positions, timed
from headrace.profiling._measurements import Rate, Stage, StageName, StagePlace
from headrace.records import Dataset
from headrace.transforms import Compiled, PerBatch

_ROUNDS = 1000
"""How often an epoch repeats the samples, so that threads always have work."""
_ORDER: tuple[StageName, ...] = ("read", "decode", "transform")

StagePart: TypeAlias = tuple[StageName, str]
"""A stage, and what it ran: for decoding the format."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """A Headrace loader to measure; makes loaders over a few of its samples that do a part of its work."""

    loader: Loader
    dataset: Dataset
    positions: Positions
    """Samples of the dataset that are in the page cache."""

    @property
    def compiled(self) -> Compiled:
        return compiled_transform(self.loader)

    @property
    def threads(self) -> int:
        return max(1, self.loader.num_workers)

    @property
    def image_fields(self) -> tuple[str, ...]:
        return tuple(name for name in self.loader.fields if self.dataset.fields[name] in ("image", "mask"))

    @property
    def images_per_sample(self) -> int:
        return max(1, len(self.image_fields))

    @property
    def batch_size(self) -> int:
        return min(self.loader.batch_size, len(self.positions))

    def bytes_per_sample(self) -> float | None:
        """Mean bytes that the loader has read per sample so far."""
        stats = self.loader.stats()
        samples = stats.images / self.images_per_sample
        return stats.bytes_read / samples if samples and stats.bytes_read else None

    def from_memory(self) -> Loader:
        """Return a loader that does everything, on samples in memory."""
        functions = [*self.compiled.per_sample, *map(PerBatch, self.compiled.per_batch)]
        return self._make(transform=[*self.compiled.transforms, *functions], rounds=_ROUNDS)

    def core_only(self, threads: int) -> Loader:
        """Return a loader that does only the work in C++."""
        options = {"output": "numpy", "collate_fn": None, "batches_ahead": 4}
        return self._make(fields=self.image_fields, num_workers=threads, rounds=_ROUNDS, **options)

    def one_batch(self, **changes: Any) -> Any:
        """Return a batch of a loader without the user's functions, and with other arguments."""
        with self._make(**changes) as loader:
            return next(iter(loader))

    def _make(self, *, rounds: int = 1, **changes: Any) -> Loader:
        loader, compiled = self.loader, self.compiled
        options: dict[str, Any] = {
            "transform": list(compiled.transforms),
            "fields": loader.fields,
            "num_workers": self.threads,
            "output": loader.output,
            "collate_fn": loader.collate_fn,
            "dtype": compiled.dtype,
            "layout": compiled.layout,
            "color": compiled.color,
            "approximate_jpeg": compiled.approximate_jpeg,
            "on_error": "skip",
        }
        indices = np.tile(self.positions, rounds)
        return Loader(
            self.dataset, indices=indices, batch_size=self.batch_size, seed=loader.seed, **(options | changes)
        )


def describe_transforms(compiled: Compiled) -> tuple[str, ...]:
    """One line each: the operation and its size, or the function's name."""
    lines = []
    for item in compiled.to_json(callables=True):
        size = item.get("size")
        shape = " x ".join(map(str, size)) if isinstance(size, list | tuple) else "" if size is None else str(size)
        lines.append(" ".join(filter(None, (str(item.get("callable") or item["op"]), shape))))
    return tuple(lines)


def core_stages(instrument: Instrument, *, cores: Sequence[int], seconds: float) -> list[Stage]:
    """Measure read, decode by format and the declarative transforms, one thread to all, on images in memory."""
    slot = seconds / len(cores) / 2
    runs = {n: max((_core_run(instrument, n, slot) for _ in range(2)), key=lambda run: run.rate) for n in cores}
    parts = sorted({part for run in runs.values() for part in run.shares}, key=lambda part: _ORDER.index(part[0]))
    stages = []
    for part in parts:
        having = {n: run for n, run in runs.items() if part in run.shares}
        rates = tuple(Rate(cores=n, rate=run.rate / run.shares[part]) for n, run in having.items())
        first = next(iter(having.values()))
        cpu = first.cpu_seconds * first.shares[part]
        stages.append(Stage(name=part[0], rates=rates, cpu_seconds=cpu, detail=part[1]))
    return stages


class _CoreRun(NamedTuple):
    """What a loader over images in memory did in some time."""

    rate: float
    shares: dict[StagePart, float]
    """Share of the threads' busy time."""
    cpu_seconds: float
    """Per image."""


def _core_run(instrument: Instrument, threads: int, seconds: float) -> _CoreRun:
    with instrument.core_only(threads) as loader:
        iterator = iter(loader)
        next(iterator)
        end = time.perf_counter() + max(seconds, 0.05)
        begun, before = time.perf_counter(), loader.stats()
        for _ in iterator:
            if time.perf_counter() >= end:
                break
        # As many batches are in flight now as at the start, so the difference is what the threads can do.
        elapsed, after = time.perf_counter() - begun, loader.stats()
    first, last = _busy_seconds(before, instrument), _busy_seconds(after, instrument)
    busy = {part: spent - first.get(part, 0.0) for part, spent in last.items() if spent > first.get(part, 0.0)}
    images = max(1.0, (after.images - before.images) / instrument.images_per_sample)
    shares = {part: spent / sum(busy.values()) for part, spent in busy.items()}
    return _CoreRun(images / elapsed, shares, (after.cpu_seconds - before.cpu_seconds) / images)


def _busy_seconds(stats: LoaderStats, instrument: Instrument) -> dict[StagePart, float]:
    """Busy seconds by part from the loader's clocks; decoding by format once an image was decoded."""
    total = stats.busy_seconds
    by_format = {name: each.decode_seconds for name, each in stats.formats.items()}
    stored = (Counter(instrument.dataset.formats.get(name)) for name in instrument.image_fields)
    most_frequent_first = (name for name, _ in sum(stored, Counter[str]()).most_common())
    decoding = by_format or {", ".join(most_frequent_first): total.decode}
    transforms = ", ".join(describe_transforms(instrument.compiled)) or "copy"
    return {
        ("read", "records"): total.read,
        **{("decode", name): spent for name, spent in decoding.items()},
        ("transform", transforms): total.transform,
    }


def function_stages(instrument: Instrument, *, seconds: float) -> list[Stage]:
    """Measure the user's functions and `collate_fn`; one thread calls them, batch by batch."""
    compiled, collate = instrument.compiled, instrument.loader.collate_fn
    count = bool(compiled.per_sample) + bool(compiled.per_batch) + (collate is not None)
    if not count:
        return []
    samples = _plain_samples(instrument)
    slot = seconds / count
    stages = []

    def functions(number: int) -> Any:
        sample = shallow_copy(samples[number])
        for function in compiled.per_sample:
            sample = function(sample)
        return sample

    if compiled.per_sample:
        timing = timed(functions, len(samples), workers=instrument.threads, seconds=slot)
        stages.append(_thread_stage("transform", timing.rate, timing.cpu_seconds, compiled.per_sample))
    if collate is not None:
        made = [functions(number) for number in range(len(samples))]
        timing = timed(lambda _: collate(list(map(shallow_copy, made))), 1, seconds=slot)
        stages.append(_thread_stage("batch", timing.rate * len(made), timing.cpu_seconds / len(made), (collate,)))
    if compiled.per_batch:
        stages.append(_per_batch_stage(instrument, slot))
    return stages


def shallow_copy(sample: Any) -> Any:
    """Copy a sample's dict or list, so that a user's function may change it and the next call gets it unchanged."""
    return copy(sample) if isinstance(sample, dict | list) else sample


def _per_batch_stage(instrument: Instrument, seconds: float) -> Stage:
    """Measure functions of complete batches; each call gets a new batch, made while the clock is stopped."""
    compiled = instrument.compiled
    elapsed = cpu = 0.0
    images = 0
    end = time.perf_counter() + seconds
    while images == 0 or time.perf_counter() < end:
        batch = instrument.one_batch(transform=[*compiled.transforms, *compiled.per_sample])
        begun, cpu_begun = time.perf_counter(), time.thread_time()
        for function in compiled.per_batch:
            batch = function(batch)
        elapsed += time.perf_counter() - begun
        cpu += time.thread_time() - cpu_begun
        images += instrument.batch_size
    return _thread_stage("transform", images / max(elapsed, 1e-9), cpu / images, compiled.per_batch)


def _plain_samples(instrument: Instrument) -> list[Any]:
    """Return samples as the user's functions get them."""
    columns = {
        name: column for name, column in instrument.one_batch(collate_fn=None).items() if not name.startswith("_")
    }

    def entry(column: Any, at: int) -> Any:
        value = column[at]
        return value.item() if getattr(value, "ndim", None) == 0 else value

    count = min(map(len, columns.values()))
    return [{name: entry(column, at) for name, column in columns.items()} for at in range(count)]


def _thread_stage(name: StageName, rate: float, cpu_seconds: float, functions: Sequence[Any]) -> Stage:
    names = ", ".join(getattr(function, "__qualname__", type(function).__name__) for function in functions)
    return Stage(name=name, place="thread", rates=(Rate(cores=1, rate=rate),), cpu_seconds=cpu_seconds, detail=names)


def clocked_stages(instrument: Instrument, known: Iterable[str]) -> list[Stage]:
    """Return the stages that cannot run alone, batch and transfer, from the loader's own clocks."""
    loader, compiled, stats = instrument.loader, instrument.compiled, instrument.loader.stats()
    samples, busy = stats.samples, stats.busy_seconds
    has_functions = bool(compiled.per_sample or compiled.per_batch or loader.collate_fn)
    batching = busy.batch - (busy.callables if compiled.per_sample else 0.0)
    stages = []
    if samples and batching > 0 and "batch" not in known:
        place: StagePlace = "thread" if has_functions or loader.device else "trainer"
        rates = (Rate(cores=1, rate=samples / batching),)
        stages.append(Stage(name="batch", place=place, rates=rates, detail="views of one buffer"))
    if samples and busy.transfer > 0:
        rates = (Rate(cores=1, rate=samples / busy.transfer),)
        stages.append(Stage(name="transfer", place="link", rates=rates, detail=f"to {loader.device}"))
    return stages
