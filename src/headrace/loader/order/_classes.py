# SPDX-License-Identifier: Apache-2.0
"""Orders of samples that belong to classes or sequences. Pure functions; spec/order.md §4 defines them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.loader.order._keys import check_seed, draw_each, draw_many, epoch_key
from headrace.loader.order._order import Order, Positions, as_positions, permuted_each

ROUND_STREAM, CLASS_STREAM = 5, 6


class Members:
    """The samples of each class: class c has `rows[starts[c] : starts[c + 1]]`, in ascending order."""

    def __init__(self, values: npt.NDArray[np.int64]) -> None:
        _, labels = np.unique(values, return_inverse=True)
        self.rows = np.argsort(labels, kind="stable").astype(np.int64)
        counts = np.bincount(labels) if len(labels) else np.empty(0, np.int64)
        self.counts = counts.astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.counts)


class ClassOrder:
    """Units of `unit` samples of one class. In every round each class comes once, in a new order.

    Unit u of a class has the samples u · unit … of the class' permutations, one after the other. The second permutation
    of a class in an epoch has copies of its samples, with other random draws.
    """

    def __init__(self, members: Members, *, unit: int, units: int, seed: int = 0) -> None:
        self.n, self.unit, self.seed = units, unit, check_seed(seed)
        self._members = members

    def take(self, epoch: int, positions: Positions) -> tuple[Positions, None]:
        """Return the samples of these units, and which copy of each it is in its upper bits (`copy_of`)."""
        indices, copies = self.places(epoch, positions)
        return indices + (copies << 30), None

    def places(self, epoch: int, positions: Positions | range) -> tuple[Positions, Positions]:
        """Return (samples, which permutation of their class they come from)."""
        chosen = as_positions(positions, self.n)
        classes = len(self._members)
        rounds, within = chosen // classes, chosen % classes
        keys = draw_many(epoch_key(self.seed, epoch, ROUND_STREAM), rounds)
        labels = np.repeat(permuted_each(np.full_like(chosen, classes), keys, within), self.unit)
        numbers = (rounds[:, None] * self.unit + np.arange(self.unit)).reshape(-1)
        copies, places = np.divmod(numbers, self._members.counts[labels])
        keys = draw_each(draw_many(epoch_key(self.seed, epoch, CLASS_STREAM), labels), copies)
        indices = permuted_each(self._members.counts[labels], keys, places)
        return self._members.rows[indices + self._members.starts[labels]], copies


class SequenceOrder:
    """Units of `unit` consecutive samples of one sequence, in the order of the dataset; units are shuffled.

    The last unit of a sequence repeats its last sample where the sequence has ended, and marks it.
    """

    def __init__(self, members: Members, *, unit: int, drop_short: bool, shuffle: bool, seed: int = 0) -> None:
        counts = members.counts
        per_sequence = counts // unit if drop_short else -(-counts // unit)
        self._ends = np.cumsum(per_sequence)
        self.n, self.unit = int(self._ends[-1]) if len(counts) else 0, unit
        self._members, self._first = members, self._ends - per_sequence
        self._order = Order(self.n, seed=seed, shuffle=shuffle)

    def take(self, epoch: int, positions: Positions) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """Return (samples of these units, which of them are repeats)."""
        units = self._order.take(epoch, positions)
        sequences = np.searchsorted(self._ends, units, side="right")
        numbers = ((units - self._first[sequences]) * self.unit)[:, None] + np.arange(self.unit)
        counts = self._members.counts[sequences][:, None]
        repeats = numbers >= counts
        rows = self._members.rows[np.minimum(numbers, counts - 1) + self._members.starts[sequences][:, None]]
        return rows.reshape(-1), repeats.reshape(-1)


class RepeatedOrder:
    """Each sample of a permutation `times` times in a row, as copies with other random draws."""

    unit = 1

    def __init__(self, n: int, *, times: int, length: int, shuffle: bool, seed: int = 0) -> None:
        self.n, self._times = length, times
        self._order = Order(n, seed=seed, shuffle=shuffle)

    def take(self, epoch: int, positions: Positions) -> tuple[Positions, None]:
        """Return the samples at these positions, and which copy of each it is in its upper bits (`copy_of`)."""
        chosen = as_positions(positions, self.n)
        return self._order.take(epoch, chosen // self._times) + (chosen % self._times << 30), None
