# SPDX-License-Identifier: Apache-2.0
"""What a sampler is: a pure function from (seed, epoch) to the samples of each batch.

A `Sampler` holds settings and is passed to `headrace.Loader`. It opens a dataset once, which gives an `OpenSampler`;
that one starts each epoch, which gives `EpochSamples`: the batches of this rank, by number.

What a sampler owes the loader: all ranks get equally many batches, and batch g has equally many samples on every rank.
Nothing depends on threads, time or what was asked before. After `progress_after(g)` was written to a checkpoint, an
epoch that starts from it has what is missing, with any batch size and world size; if it cannot, it says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from headrace.errors import InvalidState
from headrace.records import Dataset
from headrace.records.index.numbers import COPY_BITS, MAX_COPIES

Indices: TypeAlias = npt.NDArray[np.int64]
Repeats: TypeAlias = npt.NDArray[np.bool_] | None
Progress: TypeAlias = Mapping[str, Any]
"""How far an epoch has come: small JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRequest:
    """What the loader asks a sampler for."""

    epoch: int
    seed: int
    batch_size: int
    rank: int = 0
    world_size: int = 1
    drop_last: bool = False
    progress: Progress | None = None
    """Where to continue: what `progress_after` returned, maybe with another batch or world size. None: the start."""


class EpochSamples(ABC):
    """The batches of one rank in one epoch, or in the rest of it. For one thread at a time."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches, which all ranks must have in common."""

    @abstractmethod
    def batch(self, g: int) -> tuple[Indices, Repeats]:
        """Return (indices of the dataset in batch g of this rank, which of them are repeats or None).

        The number of indices must be the same on all ranks. `copy_of` marks an index whose random draws differ from
        those of the same sample elsewhere in the epoch.
        """

    @abstractmethod
    def samples_after(self, g: int) -> int:
        """Return how many samples all ranks together have had after batch g - 1, without repeats, since the start."""

    @abstractmethod
    def progress_after(self, g: int) -> Progress:
        """Return where to continue after the first g batches."""

    def shape(self, g: int) -> tuple[int, int] | None:
        """Return the height and width that all stored images of batch g fit into, on all ranks; None: not known.

        With `ragged="pad"` images are padded to it, if the transforms keep their size.
        """
        del g
        return None

    def stats(self, g: int) -> Mapping[str, Any]:
        """Return figures of the first g batches for `Loader.stats().sampling`, as JSON."""
        del g
        return {}


class OpenSampler(ABC):
    """A sampler of one dataset."""

    identity: str = ""
    """Everything that the order depends on, except for seed, epoch and dataset. A state of another one is refused."""

    @abstractmethod
    def start(self, request: EpochRequest) -> EpochSamples:
        """Return an epoch. Raises InvalidState if it cannot continue from the progress of the request."""

    def length(self, request: EpochRequest) -> int:
        """Return the number of batches of an epoch, without side effects."""
        return len(self.start(request))

    def settings(self) -> Progress | None:
        """Return what may change between epochs, as small JSON for the state; None if there is nothing."""
        return None

    def load_settings(self, settings: Progress) -> None:
        """Restore what `settings` returned. Raises InvalidState."""
        raise InvalidState(f"the state is of another sampler: this one has no settings; found {sorted(settings)}")


@runtime_checkable
class Sampler(Protocol):
    """Chooses the samples of a loader's batches: `Loader(dataset, sampler=…)`. It is pickled with the loader."""

    def open(self, dataset: Dataset) -> OpenSampler:
        """Read what is needed of the dataset. Raises ValueError if the dataset does not fit."""


def copy_of(indices: Indices, copies: Indices | int) -> Indices:
    """Return indices of copies 0 to 2**18 - 1 of samples. Copy 0 is the sample itself.

    Copies are the same sample with other random draws, such as another crop.
    """
    numbers = np.asarray(copies, np.int64)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < MAX_COPIES:
        raise ValueError(f"copies must be in [0, 2**18); got {numbers.min()} to {numbers.max()}")
    return np.asarray(indices, np.int64) + (numbers << COPY_BITS)


def column_digest(*columns: npt.NDArray[np.int64]) -> str:
    """Return a digest of columns of the index, for the identity of a sampler."""
    digest = blake2b(digest_size=16)
    for column in columns:
        digest.update(np.ascontiguousarray(column, "<i8").tobytes())
    return digest.hexdigest()


def check_copies(dataset: Dataset, what: str) -> None:
    """Raise ValueError unless a dataset may have copies."""
    n = dataset.manifest.samples
    if getattr(dataset, "patch", None) is not None:
        raise ValueError(f"{what} does not work with patches: set per_image of headrace.patches instead")
    if n > 1 << COPY_BITS:
        raise ValueError(f"{what} works with datasets of at most 2**{COPY_BITS} samples; this one has {n}")


def progress_count(progress: Progress, name: str, maximum: int) -> int:
    """Return a count of a state, checked."""
    value = progress.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise InvalidState(f"the state is damaged: {name} must be an integer in [0, {maximum}]; it is {value!r}")
    return value
