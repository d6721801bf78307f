# SPDX-License-Identifier: Apache-2.0
"""Headrace's own loader and dataset, stage by stage: a loader that does nothing but one part tells how fast that is.

Decoding and the declarative transforms run fused in C++, where a crop decides what is decoded at all. So they are
measured where they run: a loader over a few images that lie in memory, with one thread to all, whose own clocks say
which part of the time each took. The user's functions are called by themselves, on samples that were made before.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from headrace.loader import Loader
from headrace.profiling._images import Positions
from headrace.profiling._measurements import Rate, Stage, StageName
from headrace.profiling._rates import pace_of
from headrace.records import Dataset
from headrace.transforms import Compiled, PerBatch

# An epoch of the sample over and over, so that threads never run dry at its end.
_ROUNDS = 1000
_ORDER: tuple[StageName, ...] = ("read", "decode", "transform")


@dataclass(frozen=True, slots=True)
class Inside:
    """What the profile must know of a loader to take it apart."""

    compiled: Compiled
    threads: int
    collate_fn: Callable[[list[Any]], Any] | None
    output: str
    fields: tuple[str, ...]
    storage_rate: float | None
    direct: bool
    device: str | None

    @classmethod
    def of(cls, loader: Loader) -> Inside:
        options = loader._options  # noqa: SLF001 - the loader's own business, and the profile's to look into
        return cls(
            compiled=loader._parts.compiled,  # noqa: SLF001
            threads=options.threads,
            collate_fn=options.collate_fn,
            output=options.output,
            fields=options.fields,
            storage_rate=options.storage_rate,
            direct=options.direct,
            device=options.device,
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
        samples = stats.get("images", 0) / max(1, len(self.pixels) * self.inside.compiled.views)
        return stats["bytes_read"] / samples if samples and stats.get("bytes_read") else None

    def whole(self) -> Loader:
        """Do all that the loader does, but from memory."""
        compiled = self.inside.compiled
        functions = [*compiled.per_sample, *map(PerBatch, compiled.per_batch)]
        return self._make(transform=[*compiled.transforms, *functions], rounds=_ROUNDS)

    def core(self, threads: int) -> Loader:
        """Do only what C++ does, with so many threads."""
        return self._make(
            fields=self.pixels, num_workers=threads, output="numpy", collate_fn=None, prefetch_factor=4, rounds=_ROUNDS
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


Part: TypeAlias = tuple[StageName, str]
"""A stage, and for decoding the format."""


def core_stages(instrument: Instrument, *, cores: Sequence[int], seconds: float) -> list[Stage]:
    """Measure read, decode by format and the declarative transforms, one thread to all, on images in memory."""
    runs = {n: _best_of(instrument, n, seconds / len(cores)) for n in cores}
    parts = sorted({part for run in runs.values() for part in run.busy}, key=lambda part: _ORDER.index(part[0]))
    stages = []
    for part in parts:
        rates = tuple(Rate(cores=n, rate=run.rate_of(part)) for n, run in runs.items() if part in run.busy)
        cpu = runs[rates[0].cores].cpu_seconds_of(part)
        stages.append(Stage(name=part[0], rates=rates, cpu_seconds=cpu, detail=part[1]))
    return stages


@dataclass(frozen=True, slots=True)
class _CoreRun:
    """What a loader over cached images did in some time."""

    images: float
    seconds: float
    busy: dict[Part, float]
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.images / self.seconds

    def rate_of(self, part: Part) -> float:
        """Of the time that an image took, the part's share, as the threads' own clocks divide it."""
        return self.rate * sum(self.busy.values()) / self.busy[part]

    def cpu_seconds_of(self, part: Part) -> float:
        return self.cpu_seconds / self.images * self.busy[part] / sum(self.busy.values())


def _best_of(instrument: Instrument, threads: int, seconds: float) -> _CoreRun:
    return max((_core_run(instrument, threads, seconds / 2) for _ in range(2)), key=lambda run: run.rate)


def _core_run(instrument: Instrument, threads: int, seconds: float) -> _CoreRun:
    with instrument.core(threads) as loader:
        iterator = iter(loader)
        next(iterator)
        end = time.perf_counter() + max(seconds, 0.05)
        begun, before = time.perf_counter(), loader.stats()
        for _ in iterator:
            if time.perf_counter() >= end:
                break
        # As much is under way now as was at the start, so what the threads have done since is what they can do.
        taken, after = time.perf_counter() - begun, loader.stats()
    views = len(instrument.pixels) * instrument.inside.compiled.views
    details = (instrument.format_names, _describe(instrument.inside.compiled))
    was, now = _busy(before, *details), _busy(after, *details)
    busy = {part: spent - was.get(part, 0.0) for part, spent in now.items() if spent > was.get(part, 0.0)}
    images = max(1.0, (after["images"] - before["images"]) / views)
    return _CoreRun(images, taken, busy, after["cpu_seconds"] - before["cpu_seconds"])


def _busy(stats: Mapping[str, Any], formats: str, transforms: str) -> dict[Part, float]:
    """Busy seconds by part, as the loader's clocks have them; all decoding in one where it does not tell formats."""
    total: Mapping[str, float] = stats["busy_seconds"]
    by_format = {name: figures["decode_seconds"] for name, figures in stats.get("formats", {}).items()}
    decode = by_format or {formats: total.get("decode", 0.0)}
    return {
        ("read", "records"): total.get("read", 0.0),
        **{("decode", name): spent for name, spent in decode.items()},
        ("transform", transforms): total.get("transform", 0.0),
    }


def function_stages(instrument: Instrument, *, seconds: float) -> list[Stage]:
    """Measure the user's functions and `collate_fn`: one thread does them batch by batch, however many help it."""
    compiled, collate = instrument.inside.compiled, instrument.inside.collate_fn
    parts = bool(compiled.per_sample) + bool(compiled.per_batch) + (collate is not None)
    if not parts:
        return []
    samples = _samples(instrument)
    slot = seconds / parts
    stages = []

    def functions(number: int) -> Any:
        sample = samples[number]
        for function in compiled.per_sample:
            sample = function(sample)
        return sample

    if compiled.per_sample:
        pace = pace_of(functions, len(samples), workers=instrument.inside.threads, seconds=slot)
        stages.append(_thread_stage("transform", pace.rate, pace.cpu_seconds, _names(compiled.per_sample)))
    if collate is not None:
        made = [functions(number) for number in range(len(samples))]
        pace = pace_of(lambda _: collate(list(made)), 1, seconds=slot)
        each = pace.cpu_seconds / len(made)
        stages.append(_thread_stage("batch", pace.rate * len(made), each, _names((collate,))))
    if compiled.per_batch:
        stages.append(_per_batch_stage(instrument, slot))
    return stages


def _per_batch_stage(instrument: Instrument, seconds: float) -> Stage:
    """Functions of a whole batch, which they may change: each call has a batch of its own, made before the clock."""
    functions = instrument.inside.compiled.per_batch
    spent = cpu = 0.0
    images = 0
    end = time.perf_counter() + seconds
    while images == 0 or time.perf_counter() < end:
        batch = instrument.batch()
        begun, cpu_begun = time.perf_counter(), time.thread_time()
        for function in functions:
            batch = function(batch)
        spent += time.perf_counter() - begun
        cpu += time.thread_time() - cpu_begun
        images += instrument.batch_size
    return _thread_stage("transform", images / max(spent, 1e-9), cpu / images, _names(functions))


def _samples(instrument: Instrument) -> list[Any]:
    """Samples as the user's functions get them."""
    batch = instrument.samples()
    columns = {name: column for name, column in batch.items() if not name.startswith("_")}
    return [
        {name: _entry(column, at) for name, column in columns.items()} for at in range(min(map(len, columns.values())))
    ]


def _entry(column: Any, at: int) -> Any:
    value = column[at]
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _thread_stage(name: StageName, rate: float, cpu_seconds: float, detail: str) -> Stage:
    return Stage(name=name, place="thread", rates=(Rate(cores=1, rate=rate),), cpu_seconds=cpu_seconds, detail=detail)


def _names(functions: Sequence[Any]) -> str:
    return ", ".join(getattr(function, "__qualname__", type(function).__name__) for function in functions)


def _describe(compiled: Compiled) -> str:
    return ", ".join(describe_transforms(compiled)) or "copy"


def describe_transforms(compiled: Compiled) -> tuple[str, ...]:
    """One line each: the operation and its size, or the function's name."""
    lines = []
    for item in compiled.to_json(callables=True):
        size = item.get("size")
        shape = " x ".join(map(str, size)) if isinstance(size, list | tuple) else "" if size is None else str(size)
        lines.append(" ".join(filter(None, (str(item.get("callable") or item["op"]), shape))))
    return tuple(lines)
