# SPDX-License-Identifier: Apache-2.0
"""The stages of Headrace's own loader: a loader that does nothing but one part tells how fast that is.

Decoding and the declarative transforms run fused in C++, where a crop decides what is decoded at all. So they are
measured where they run: a loader over a few images that lie in memory, with one thread to all, whose own clocks say
which part of the time each took. The user's functions are called by themselves, on samples that were made before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.loader import LoaderStats
from headrace.measuring import timed
from headrace.profiling._measurements import Place, Rate, Stage, StageName
from headrace.profiling.stages._instrument import Instrument, describe_transforms
from headrace.transforms import Compiled

_ORDER: tuple[StageName, ...] = ("read", "decode", "transform")

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
    images = max(1.0, (after.images - before.images) / views)
    return _CoreRun(images, taken, busy, after.cpu_seconds - before.cpu_seconds)


def _busy(stats: LoaderStats, formats: str, transforms: str) -> dict[Part, float]:
    """Busy seconds by part, as the loader's clocks have them; decoding by format once any image was decoded."""
    total = stats.busy_seconds
    decode = {name: each.decode_seconds for name, each in stats.formats.items()} or {formats: total.decode}
    return {
        ("read", "records"): total.read,
        **{("decode", name): spent for name, spent in decode.items()},
        ("transform", transforms): total.transform,
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
        sample = fresh(samples[number])
        for function in compiled.per_sample:
            sample = function(sample)
        return sample

    if compiled.per_sample:
        timing = timed(functions, len(samples), workers=instrument.inside.threads, seconds=slot)
        stages.append(_thread_stage("transform", timing.rate, timing.cpu_seconds, _names(compiled.per_sample)))
    if collate is not None:
        made = [functions(number) for number in range(len(samples))]
        timing = timed(lambda _: collate(list(map(fresh, made))), 1, seconds=slot)
        each = timing.cpu_seconds / len(made)
        stages.append(_thread_stage("batch", timing.rate * len(made), each, _names((collate,))))
    if compiled.per_batch:
        stages.append(_per_batch_stage(instrument, slot))
    return stages


def fresh(sample: Any) -> Any:
    """Give a sample that the user's function may take things out of: the next call gets another one."""
    return copy(sample) if isinstance(sample, dict | list) else sample


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


def own_clocks(instrument: Instrument, known: Iterable[str]) -> list[Stage]:
    """What the loader's own clocks say of the stages that cannot be run by themselves: batch, transfer."""
    inside, stats = instrument.inside, instrument.loader.stats()
    samples, busy = stats.samples, stats.busy_seconds
    functions = bool(inside.compiled.per_sample or inside.compiled.per_batch or inside.collate_fn)
    stages = []
    batching = busy.batch - (busy.callables if inside.compiled.per_sample else 0.0)
    if samples and batching > 0 and "batch" not in known:
        place: Place = "thread" if functions or inside.device else "trainer"
        rates = (Rate(cores=1, rate=samples / batching),)
        stages.append(Stage(name="batch", place=place, rates=rates, detail="views of one buffer"))
    if samples and busy.transfer > 0:
        rates = (Rate(cores=1, rate=samples / busy.transfer),)
        stages.append(Stage(name="transfer", place="link", rates=rates, detail=f"to {inside.device}"))
    return stages
