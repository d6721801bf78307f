# SPDX-License-Identifier: Apache-2.0
"""Samplers that go by a column of the index: balanced classes, several samples per class, sequences, repeats."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.loader.order._classes import ClassOrder, Members, RepeatedOrder, SequenceOrder
from headrace.loader.sampling._positions import UnitSampler
from headrace.loader.sampling._protocol import OpenSampler, check_copies, column_digest
from headrace.records import Dataset
from headrace.records.index.arrays import to_numpy
from headrace.records.index.numbers import MAX_COPIES


@dataclass(frozen=True)
class ClassBalanced:
    """All classes equally often, however many samples they have.

    In each round every class comes once, in a new order. Samples of a large class are left out of some epochs; those
    of a small class come several times, with other random draws.

    Args:
        by: The field of integers or strings that is the class.
        length: Samples per epoch; None is the number of samples of the dataset.

    """

    by: str = "label"
    length: int | None = None

    def __post_init__(self) -> None:
        _at_least("ClassBalanced: length", self.length, 1)

    def open(self, dataset: Dataset) -> OpenSampler:
        """Read the classes of all samples from the index."""
        return _open_classes(dataset, self.by, 1, self.length, "ClassBalanced")


@dataclass(frozen=True)
class PerClass:
    """`m` samples of each class in a batch: for metric learning and contrastive losses.

    A rank's batch consists of `batch_size / m` classes. In each round every class comes once; a class may come twice in
    the batch in which one round ends and the next begins. A class with fewer than m samples repeats some, with other
    random draws.

    Args:
        m: Samples per class; batch_size must be a multiple of it.
        by: The field of integers or strings that is the class.
        length: Samples per epoch, rounded down to a multiple of m; None is the number of samples of the dataset.

    """

    m: int
    by: str = "label"
    length: int | None = None

    def __post_init__(self) -> None:
        _at_least("PerClass: m", self.m, 1)
        _at_least("PerClass: length", self.length, 1)

    def open(self, dataset: Dataset) -> OpenSampler:
        """Read the classes of all samples from the index."""
        return _open_classes(dataset, self.by, self.m, self.length, "PerClass")


@dataclass(frozen=True)
class Grouped:
    """Consecutive samples of a sequence together: `size` frames, in the order of the dataset, in one batch of one rank.

    Each sequence is cut into clips of `size` samples. Clips come in a new order in every epoch.

    Args:
        by: The field of integers or strings that samples of a sequence have in common.
        size: Samples per clip; batch_size must be a multiple of it.
        drop_short: Omit the end of a sequence that is shorter than a clip. Otherwise its last sample is repeated, and
            marked in `batch["_repeat"]`.
        shuffle: Whether clips come in a new order in every epoch.

    """

    by: str
    size: int
    drop_short: bool = False
    shuffle: bool = True

    def __post_init__(self) -> None:
        _at_least("Grouped: size", self.size, 1)

    def open(self, dataset: Dataset) -> OpenSampler:
        """Read which sequence each sample belongs to from the index."""
        values = class_numbers(dataset, self.by, "Grouped")
        members = Members(values)
        return UnitSampler(
            lambda seed: SequenceOrder(
                members, unit=self.size, drop_short=self.drop_short, shuffle=self.shuffle, seed=seed
            ),
            f"grouped {self.size} {self.drop_short} {self.shuffle} {column_digest(values)}",
        )


@dataclass(frozen=True)
class Repeated:
    """Each sample `times` times in a row, with other random draws: repeated augmentation (Hoffer et al., 2020), DeiT.

    Neighbours in the order are on different ranks, so the ranks see different augmentations of one sample.

    Args:
        times: How often each sample comes.
        length: Samples per epoch; None is `times` times the dataset. DeiT uses the number of samples of the dataset:
            then each epoch has a part of them.
        shuffle: Whether each epoch has a new order.

    """

    times: int = 3
    length: int | None = None
    shuffle: bool = True

    def __post_init__(self) -> None:
        _at_least("Repeated: times", self.times, 1)
        _at_least("Repeated: length", self.length, 1)
        if self.times > MAX_COPIES:
            raise ValueError(f"Repeated: times must be at most {MAX_COPIES}; got {self.times}")

    def open(self, dataset: Dataset) -> OpenSampler:
        """Check that the dataset can have copies."""
        n = len(dataset)
        check_copies(dataset, "Repeated")
        length = n * self.times if self.length is None else self.length
        if length > n * self.times:
            raise ValueError(f"Repeated: length must be at most {self.times} times {n} samples; got {length}")
        return UnitSampler(
            lambda seed: RepeatedOrder(n, times=self.times, length=length, shuffle=self.shuffle, seed=seed),
            f"repeated {self.times} {length} {self.shuffle}",
        )


def _open_classes(dataset: Dataset, by: str, unit: int, length: int | None, name: str) -> OpenSampler:
    check_copies(dataset, name)
    values = class_numbers(dataset, by, name)
    members = Members(values)
    units = (len(values) if length is None else length) // unit if len(values) else 0
    if units and -(-units // len(members)) * unit // int(members.counts.min()) >= MAX_COPIES:
        raise ValueError(f"{name}: the smallest class would come more than {MAX_COPIES} times: set a smaller length")
    return UnitSampler(
        lambda seed: ClassOrder(members, unit=unit, units=units, seed=seed),
        f"classes {unit} {units} {column_digest(values)}",
    )


def class_numbers(dataset: Dataset, by: str, name: str) -> npt.NDArray[np.int64]:
    """Return a number for each sample that is equal where a field of integers or strings is equal."""
    kind = dataset.fields.get(by)
    if kind == "int64":
        return dataset.column(by)
    if kind == "str":
        column = dataset.table.column(by).combine_chunks().dictionary_encode()
        return to_numpy(column.indices.cast(pa.int64()))
    fitting = ", ".join(field for field, found in dataset.fields.items() if found in ("int64", "str"))
    raise ValueError(f"{name}: by must be a field of integers or strings, which are {fitting or 'none'}; got {by!r}")


def _at_least(name: str, value: Any, minimum: int) -> None:
    if value is None:
        return
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer; got {value!r}") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {number}")
