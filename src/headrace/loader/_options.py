# SPDX-License-Identifier: Apache-2.0
"""What a loader is asked for, checked once; every message says what would be right."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from headrace.formats import MAX_PIXELS
from headrace.records import Dataset
from headrace.units import usable_cores

OutputName: TypeAlias = Literal["torch", "numpy", "jax"]
OnError: TypeAlias = Literal["raise", "skip", "replace"]
Layout: TypeAlias = Literal["CHW", "HWC"]
Ragged: TypeAlias = Literal["list", "pad", "error"]
Color: TypeAlias = Literal["auto", "RGB", "keep"]
Decode: TypeAlias = Literal["auto", "cpu", "device"]

# Samples in progress per thread, at least, however small the batches are.
_SAMPLES_PER_THREAD = 2
# When reads wait for storage: enough samples to keep storage and cores busy, but a bounded number of small batches.
_SAMPLES_FOR_READS = 96
_BATCHES_FOR_READS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The checked options of a loader, all but the dataset, its order and its transforms."""

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
                raise ValueError(f"{name} is one of {listed}, not {getattr(self, name)!r}")
        if self.output != "torch" and (self.device is not None or self.pin_memory):
            raise ValueError(f"device and pin_memory are for output='torch', and output is {self.output!r}")
        if self.num_workers == 0 and self.decode == "device":
            raise ValueError("decode='device' needs a worker thread; num_workers must be at least 1 or None, got 0")
        if self.collate_fn is not None and not callable(self.collate_fn):
            raise TypeError(f"collate_fn is called with a list of samples; {self.collate_fn!r} cannot be called")

    @property
    def threads(self) -> int:
        """Threads that work at the same time: the workers, or the calling thread."""
        return max(1, self.num_workers)

    @property
    def batches_ahead(self) -> int:
        """How many batches are in progress at a time."""
        if self.num_workers == 0:
            return 1  # the calling thread makes each batch when it asks for it
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


def at_least(name: str, value: Any, least: int) -> int:
    """Give a whole number of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {value!r}") from None
    if number < least:
        raise ValueError(f"{name} is {number}; it must be at least {least}")
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
    """Check a choice of fields; None is all of them."""
    if fields is None:
        return tuple(dataset.fields)
    if isinstance(fields, str):
        raise TypeError(f"fields is a list of names: write [{fields!r}]")
    chosen = tuple(dict.fromkeys(fields))
    for name in chosen:
        if name not in dataset.fields:
            raise ValueError(f"the dataset has no field {name!r}; its fields are {', '.join(dataset.fields)}")
    if not chosen:
        raise ValueError(f"fields is empty; the dataset's fields are {', '.join(dataset.fields)}")
    return chosen


def dtype_name(dtype: Any) -> str | None:
    """Name a dtype given as text, or as NumPy's or PyTorch's own."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    text = str(dtype)
    return text.removeprefix("torch.") if text.startswith("torch.") else np.dtype(dtype).name


# Words of PyTorch's DataLoader that have no meaning here, and do no harm.
_NEEDLESS = {"in_order", "multiprocessing_context", "persistent_workers", "pin_memory_device", "timeout"}
_INSTEAD = {
    "batch_sampler": "give batch_size, and shuffle, indices or weights",
    "generator": "give a seed",
    "prefetch_factor": "give batches_ahead, the number of batches that all workers together prepare ahead",
    "sampler": "give shuffle, indices or weights, and rank and world_size",
    "worker_init_fn": "the workers are threads of C++ and run no Python",
}


def check_torch_words(words: Mapping[str, Any], known: Iterable[str]) -> None:
    """Accept arguments of PyTorch's DataLoader that do no harm; name what to write instead of all others.

    `known` are the names of the loader's own arguments, for those that are misspelled.
    """
    for word, value in words.items():
        if word in _INSTEAD:
            if value is not None:
                raise TypeError(f"the loader takes no {word}: {_INSTEAD[word]}")
        elif word not in _NEEDLESS:
            raise TypeError(f"Loader has no argument {word!r}{_suggestion(word, [*known, *_NEEDLESS])}")
    if words.get("in_order") is False:
        raise TypeError("the loader always keeps the order: leave in_order out")


def _suggestion(word: str, known: Iterable[str]) -> str:
    plain = {name.replace("_", ""): name for name in known}
    close = difflib.get_close_matches(word.replace("_", "").lower(), plain, n=1)
    return f"; did you mean {plain[close[0]]!r}?" if close else ""
