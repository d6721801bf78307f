# SPDX-License-Identifier: Apache-2.0
"""The checked options of a loader."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from headrace.errors import PlanMismatch
from headrace.formats import MAX_PIXELS
from headrace.loader.batch.output import OutputName
from headrace.records import Dataset
from headrace.records.plan import Mix, load_plan, parse_mixes
from headrace.records.schema import stored_format
from headrace.units import usable_cores

OnError: TypeAlias = Literal["raise", "skip", "replace"]
Layout: TypeAlias = Literal["CHW", "HWC"]
Ragged: TypeAlias = Literal["list", "pad", "error"]
Color: TypeAlias = Literal["auto", "RGB", "keep"]
Decode: TypeAlias = Literal["auto", "cpu", "device"]

# Minimum samples in progress per thread, however small the batches are.
_SAMPLES_PER_THREAD = 2
# When reads wait for storage: enough samples to keep storage and cores busy, but a bounded number of small batches.
_SAMPLES_FOR_READS = 96
_BATCHES_FOR_READS = 8
# The keys of samples decide their formats, so a format that is planned for fewer samples than this may have none.
_MIN_EXPECTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a loader, except for the dataset, the order and the transforms."""

    batch_size: int
    drop_last: bool
    fields: tuple[str, ...]
    num_workers: int
    """Worker threads; 0 works in the calling thread."""
    min_batches_ahead: int
    pin_memory: bool
    device: str | None
    output: OutputName
    collate_fn: Callable[[list[Any]], Any] | None
    on_error: OnError
    dtype: str | None
    layout: Layout
    ragged: Ragged
    color: Color
    min_area: float
    direct_io: bool
    approximate_jpeg: bool
    storage_rate: float | None = None
    plan: Mapping[str, Any] | None = None
    decode: Decode = "auto"
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        at_least("batch_size", self.batch_size, 1)
        at_least("batches_ahead", self.min_batches_ahead, 1)
        at_least("max_pixels", self.max_pixels, 1)
        check_rate(self.storage_rate)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                listed = ", ".join(map(repr, get_args(choices)))
                raise ValueError(f"{name} must be one of {listed}; got {getattr(self, name)!r}")
        if self.output != "torch" and (self.device is not None or self.pin_memory):
            raise ValueError(f"device and pin_memory need output='torch'; got output={self.output!r}")
        if self.num_workers == 0 and self.decode == "device":
            raise ValueError("decode='device' needs num_workers of at least 1, or None; got 0")
        if self.collate_fn is not None and not callable(self.collate_fn):
            raise TypeError(f"collate_fn must be a function of a list of samples; got {self.collate_fn!r}")

    @property
    def threads(self) -> int:
        """Threads that work at the same time: the workers or, without workers, the calling thread."""
        return max(1, self.num_workers)

    @property
    def batches_ahead(self) -> int:
        """The maximum number of batches in progress."""
        if self.num_workers == 0:
            return 1  # the calling thread makes each batch when it needs it
        for_threads = -(-_SAMPLES_PER_THREAD * self.threads // self.batch_size)
        waits = self.direct_io or self.storage_rate is not None
        for_reads = min(_BATCHES_FOR_READS, -(-_SAMPLES_FOR_READS // self.batch_size)) if waits else 0
        return max(self.min_batches_ahead, for_threads, for_reads)


_CHOICES = {
    "output": OutputName,
    "on_error": OnError,
    "layout": Layout,
    "ragged": Ragged,
    "color": Color,
    "decode": Decode,
}


def at_least(name: str, value: Any, minimum: int) -> int:
    """Check that an argument is an integer of at least `minimum`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer; got {value!r}") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {number}")
    return number


def check_rate(rate: float | None) -> float:
    """Return bytes per second as the engine expects them: 0 means no limit."""
    if rate is None:
        return 0.0
    if not 0 < rate < float("inf"):
        raise ValueError(f"the storage limit must be > 0 bytes per second, or None for no limit; got {rate!r}")
    return float(rate)


def worker_count(num_workers: int | None) -> int:
    """Check the number of worker threads; None means one per core that this process may use."""
    return usable_cores() if num_workers is None else at_least("num_workers", num_workers, 0)


def chosen_fields(dataset: Dataset, fields: Iterable[str] | None) -> tuple[str, ...]:
    """Check the names of fields; None means all."""
    if fields is None:
        return tuple(dataset.fields)
    if isinstance(fields, str):
        raise TypeError(f"fields must be a list of names: write [{fields!r}]")
    chosen = tuple(dict.fromkeys(fields))
    for name in chosen:
        if name not in dataset.fields:
            raise ValueError(f"the dataset has no field {name!r}; its fields are {', '.join(dataset.fields)}")
    if not chosen:
        raise ValueError(f"fields must not be empty; the dataset has {', '.join(dataset.fields)}")
    return chosen


def dtype_name(dtype: Any) -> str | None:
    """Return the name of a dtype, which may be a string or a dtype of NumPy or PyTorch."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    text = str(dtype)
    return text.removeprefix("torch.") if text.startswith("torch.") else np.dtype(dtype).name


# Arguments of PyTorch's DataLoader that are ignored: the loader needs none of them.
_IGNORED = {"in_order", "multiprocessing_context", "persistent_workers", "pin_memory_device", "timeout"}
_INSTEAD = {
    "batch_sampler": "give batch_size, and shuffle, indices or weights",
    "generator": "give a seed",
    "prefetch_factor": "give batches_ahead, the number of batches that all workers together prepare ahead",
    "sampler": "give shuffle, indices or weights, and rank and world_size",
    "worker_init_fn": "the workers are C++ threads and run no Python",
}


def check_torch_arguments(arguments: Mapping[str, Any], known: Iterable[str]) -> None:
    """Ignore arguments of PyTorch's DataLoader that are not needed; refuse all others and say what to use instead.

    `known` are the names of the loader's own arguments, to suggest one for a misspelled name.
    """
    for name, value in arguments.items():
        if name in _INSTEAD:
            if value is not None:
                raise TypeError(f"Loader has no argument {name}: {_INSTEAD[name]}")
        elif name not in _IGNORED:
            raise TypeError(f"Loader has no argument {name!r}{_suggestion(name, [*known, *_IGNORED])}")
    if arguments.get("in_order") is False:
        raise TypeError("the loader always keeps the order: omit in_order")


def _suggestion(name: str, known: Iterable[str]) -> str:
    plain = {each.replace("_", ""): each for each in known}
    close = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1)
    return f"; did you mean {plain[close[0]]!r}?" if close else ""


def check_plan(
    dataset: Dataset, plan: Mapping[str, Any] | str | PathLike[str] | None, fields: tuple[str, ...]
) -> dict[str, Any] | None:
    """Return the plan as JSON, checked against the dataset. Fields that are not loaded are not checked.

    Raises:
        ValueError: It is not a valid plan.
        PlanMismatch: The dataset was built with another plan.

    """
    if plan is None:
        return None
    checked = load_plan(plan if isinstance(plan, Mapping) else Path(plan))
    for name, mix in parse_mixes(checked).items():
        if name not in dataset.formats:
            known = ", ".join(dataset.formats) or "none"
            raise PlanMismatch(f"the plan has a field {name!r}; the image fields of {dataset.path} are {known}")
        if name in fields:
            _check_field(dataset, name, mix)
    return checked


def _check_field(dataset: Dataset, name: str, mix: Mix) -> None:
    counts = dataset.formats[name]
    stored = next(field.renditions for field in dataset.manifest.fields if field.name == name)
    remedy = "build it again with `headrace build --plan`, or load it without a plan"
    if stored < mix.renditions:
        raise PlanMismatch(
            f"the plan has {mix.renditions} renditions of {name!r} per sample; {dataset.path} has {stored}: {remedy}"
        )
    found = ", ".join(counts) or "no images"
    planned = {stored_format(each) for each in mix.formats}
    if stored == mix.renditions and set(counts) - planned:
        raise PlanMismatch(
            f"the plan has {name!r} as {', '.join(sorted(planned))}; {dataset.path} has {found}: {remedy}"
        )
    start = 0.0
    for planned_format, end in zip(mix.formats, mix.ends, strict=True):
        share, start = end - start, end
        format_name = stored_format(planned_format)
        if share * dataset.manifest.samples >= _MIN_EXPECTED and not counts.get(format_name):
            raise PlanMismatch(
                f"the plan has {share:.0%} of {name!r} as {format_name}; {dataset.path} has {found}: {remedy}"
            )
