# SPDX-License-Identifier: Apache-2.0
"""Counters of a loader, and `LoaderStats`, which users get."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from threading import Lock
from typing import Any, TypeVar

from headrace.storage import StoreCounts

MAX_NAMED_ERRORS = 100
"""Errors that are listed; all are counted."""


@dataclass(frozen=True, slots=True)
class SampleError:
    """A sample that could not be loaded."""

    epoch: int
    row: int
    """Row of the dataset."""
    action: str
    """What the loader did: `"skipped"` or `"replaced"`."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BusySeconds:
    """How long each stage was busy, in seconds over all threads."""

    read: float = 0.0
    decode: float = 0.0
    transform: float = 0.0
    """Declarative transforms."""
    callables: float = 0.0
    """Python functions, per sample and per batch; part of `batch`."""
    batch: float = 0.0
    transfer: float = 0.0
    """Copies to the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatStats:
    """What the images of one stored format took."""

    images: int = 0
    bytes_read: int = 0
    read_seconds: float = 0.0
    decode_seconds: float = 0.0
    transform_seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoaderStats:
    """What a loader has done since it was created.

    If `wait_seconds` is near 0, the loader keeps up with the training. Otherwise look first at the stage with the most
    `busy_seconds`.
    """

    batches: int = 0
    """Batches that the loader has returned."""
    samples: int = 0
    """Samples in those batches."""
    wait_seconds: float = 0.0
    """How long the training loop waited for batches."""
    wall_seconds: float = 0.0
    """Time from the start of each iteration to its last batch, including the training."""
    busy_seconds: BusySeconds = BusySeconds()
    cpu_seconds: float = 0.0
    """CPU time of reading, decoding and declarative transforms."""
    images: int = 0
    """Images and masks that were decoded, including those of prefetched batches."""
    images_on_device: int = 0
    """How many of them a device decoded."""
    bytes_read: int = 0
    failed_renditions: int = 0
    """Stored encodings that failed, where another one of the same image could be used."""
    formats: Mapping[str, FormatStats] = field(default_factory=dict)
    """By the name of the stored format."""
    error_count: int = 0
    """Samples that could not be loaded."""
    errors: tuple[SampleError, ...] = ()
    """The first 100 of them."""
    batches_ready: int = 0
    """Finished batches that wait for the training loop now."""
    queued_images: int = 0
    """Images that wait for a worker thread now."""
    active_workers: int = 0
    """Worker threads that are decoding now."""
    blocks_in_use: int = 0
    """Blocks of batch memory in use now."""
    plan: Mapping[str, Any] | None = None
    """`fields` and `predicted` of the loader's plan."""
    offload: Mapping[str, Any] | None = None
    """What offload workers did, if the loader uses them."""
    store: StoreCounts | None = None
    """Requests to the object store, if the dataset is in one."""

    def since(self, earlier: LoaderStats) -> LoaderStats:
        """Return what was done after `earlier`, which this loader returned before.

        Counts and seconds are differences. Current values (`batches_ready`, `queued_images`, …), the errors, the plan,
        offload and store are those of this object.
        """
        counted: dict[str, Any] = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTS}
        formats = {
            name: _difference(own, earlier.formats.get(name, FormatStats())) for name, own in self.formats.items()
        }
        busy = _difference(self.busy_seconds, earlier.busy_seconds)
        return replace(self, **counted, formats=formats, busy_seconds=busy)

    def to_json(self) -> dict[str, Any]:
        """Return nested dictionaries and lists, for a report or a log."""
        tree = asdict(self)
        return {**tree, "errors": list(tree["errors"])}

    def __repr__(self) -> str:
        rate = f", {self.samples / self.wall_seconds:,.0f} samples/s" if self.wall_seconds else ""
        waited = f" ({self.wait_seconds / self.wall_seconds:.0%})" if self.wall_seconds else ""
        busy = ", ".join(f"{each.name} {getattr(self.busy_seconds, each.name):.2f}" for each in fields(BusySeconds))
        lines = [
            f"LoaderStats: {self.batches} batches, {self.samples} samples{rate}",
            f"  training waited {self.wait_seconds:.2f} s of {self.wall_seconds:.2f} s{waited}",
            f"  busy seconds over all threads: {busy}",
            f"  {self.images} images decoded, {self.bytes_read:,} bytes read, {self.cpu_seconds:.2f} s of CPU time",
        ]
        lines += [
            f"    {name}: {own.images} images, {own.bytes_read:,} bytes, decode {own.decode_seconds:.2f} s"
            for name, own in self.formats.items()
        ]
        if self.error_count:
            lines.append(f"  {self.error_count} samples could not be loaded; first: {self.errors[0].message}")
        return "\n".join(lines)


_FORMAT_NUMBERS = tuple(each.name for each in fields(FormatStats))
_ENGINE_NUMBERS = ("cpu_seconds", "images", "images_on_device", "bytes_read", "failed_renditions")
_METER_NUMBERS = ("batches", "samples", "wait_seconds", "wall_seconds", "error_count")
_COUNTS = (*_METER_NUMBERS, *_ENGINE_NUMBERS)

Seconds = TypeVar("Seconds", BusySeconds, FormatStats)


def _difference(now: Seconds, earlier: Seconds) -> Seconds:
    names = (each.name for each in fields(now))
    return type(now)(**{name: getattr(now, name) - getattr(earlier, name) for name in names})


@dataclass(slots=True)
class Meters:
    """Counts and seconds since the loader was created. Each number is written by one thread at a time."""

    batches: int = 0
    samples: int = 0
    wait_seconds: float = 0.0
    wall_seconds: float = 0.0
    batch_seconds: float = 0.0
    callable_seconds: float = 0.0
    error_count: int = 0
    errors: list[SampleError] = field(default_factory=list)
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=256))  # seconds of training between batches


ENGINE_STATE = {"queued_images": "queued_images", "active_threads": "active_workers", "blocks_in_use": "blocks_in_use"}
"""Values of a running engine that are not counters, and their names in `LoaderStats`."""


def make_stats(
    meters: Meters,
    engine: Mapping[str, Any],
    *,
    transfer_seconds: float,
    ready: int,
    plan: Mapping[str, Any] | None,
    offload: Mapping[str, Any] | None,
) -> LoaderStats:
    """Combine the loader's meters with the engine's counters, which are empty if there are no pixel fields."""
    return LoaderStats(
        **{name: getattr(meters, name) for name in _METER_NUMBERS},
        busy_seconds=BusySeconds(
            read=engine.get("read_seconds", 0.0),
            decode=engine.get("decode_seconds", 0.0),
            transform=engine.get("transform_seconds", 0.0),
            callables=meters.callable_seconds,
            batch=meters.batch_seconds,
            transfer=transfer_seconds,
        ),
        formats={name: FormatStats(**own) for name, own in engine.get("formats", {}).items()},
        errors=tuple(meters.errors),
        batches_ready=ready,
        **{ours: engine.get(name, 0) for name, ours in ENGINE_STATE.items()},
        plan=plan,
        offload=offload,
        store=engine.get("store"),
        **{name: engine[name] for name in _ENGINE_NUMBERS if name in engine},
    )


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
    """Sums by format, for images that a device decodes. Safe to use from many threads."""

    def __init__(self) -> None:
        self._formats: dict[str, dict[str, float]] = {}
        self._lock = Lock()
        self.own_cpu_seconds = 0.0  # the part of `cpu_seconds` that the thread which makes the batches has used

    def add(self, form: str, **amounts: float) -> None:
        """Add to the figures of a format."""
        with self._lock:
            own = self._formats.setdefault(form, dict.fromkeys(_FORMAT_NUMBERS, 0))
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
        totals = {name: sum(own[name] for own in formats.values()) for name in _FORMAT_NUMBERS}
        return _sum_counts(engine, {**totals, "images_on_device": totals["images"], "formats": formats})


def _sum_counts(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Add numbers of the same name, also within nested mappings."""
    total = dict(first)
    for name, own in second.items():
        nested = isinstance(own, Mapping)
        total[name] = _sum_counts(total.get(name, {}), own) if nested else total.get(name, 0) + own
    return total
