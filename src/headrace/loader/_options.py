# SPDX-License-Identifier: Apache-2.0
"""The checked options of a loader."""

from __future__ import annotations

import difflib
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from headrace.errors import PlanMismatch
from headrace.formats import MAX_PIXELS
from headrace.loader.batch.output import OutputName
from headrace.records import Dataset
from headrace.records.plan import Mix, load_plan, parse_mixes
from headrace.records.schema import stored_format

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
    num_workers: int  # worker threads; 0 works in the calling thread
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


class Ranks(NamedTuple):
    """The rank of a process among those that train together."""

    rank: int = 0
    world_size: int = 1


def find_ranks(rank: int | None = None, world_size: int | None = None) -> Ranks:
    """Return the arguments, else the ranks of torch.distributed or jax.distributed, else a single rank.

    It imports neither: a process that has not imported one of them has not initialized it.
    """
    if rank is None and world_size is None:
        return _torch_ranks() or _jax_ranks() or Ranks()
    if rank is None or world_size is None:
        given, missing = ("world_size", "rank") if rank is None else ("rank", "world_size")
        raise ValueError(f"{given} needs {missing} too: give both, or neither to use torch.distributed")
    found = Ranks(operator.index(rank), operator.index(world_size))
    if found.world_size < 1 or not 0 <= found.rank < found.world_size:
        raise ValueError(f"rank must be in [0, world_size); got rank {found.rank}, world_size {found.world_size}")
    return found


def _torch_ranks() -> Ranks | None:
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return Ranks(int(module.get_rank()), int(module.get_world_size()))


def _jax_ranks() -> Ranks | None:
    module = sys.modules.get("jax")
    distributed = getattr(module, "distributed", None)  # None while jax itself is being imported
    initialized = getattr(distributed, "is_initialized", None)  # since jax 0.4.35
    if module is None or initialized is None or not initialized():
        return None
    return Ranks(int(module.process_index()), int(module.process_count()))


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

    Raises ValueError if it is not a valid plan, and PlanMismatch if the dataset was built with another one.
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
    planned = {stored_format(each) for each in mix.formats}
    found, problem = ", ".join(counts) or "no images", None
    if stored < mix.renditions:
        problem, found = f"{mix.renditions} renditions of {name!r} per sample", str(stored)
    elif stored == mix.renditions and set(counts) - planned:
        problem = f"{name!r} as {', '.join(sorted(planned))}"
    else:
        for planned_format, (start, end) in zip(mix.formats, pairwise((0.0, *mix.ends)), strict=True):
            share, format_name = end - start, stored_format(planned_format)
            if share * dataset.manifest.samples >= _MIN_EXPECTED and not counts.get(format_name):
                problem = problem or f"{share:.0%} of {name!r} as {format_name}"
    if problem is not None:
        remedy = "build it again with `headrace build --plan`, or load it without a plan"
        raise PlanMismatch(f"the plan has {problem}; {dataset.path} has {found}: {remedy}")
