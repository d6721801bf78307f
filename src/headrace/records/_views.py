# SPDX-License-Identifier: Apache-2.0
"""Which rows a view of a dataset has: selected, split at random, or named by a column.

Random splits are the same on every machine and with every version of NumPy: rows are sorted by a keyed bijection of
their numbers (the finalizer of SplitMix64), and cut at the fractions. NumPy may change its own permutations between
versions, which would move validation samples into training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from multiprocessing import context
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.records._shared import SharedBytes
from headrace.records.index.arrays import to_numpy

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class Rows:
    """The rows of a view: a read-only array that spawned workers share instead of copying."""

    def __init__(self, rows: npt.NDArray[np.int64]) -> None:
        self.array = rows
        self.array.flags.writeable = False
        self._shared: SharedBytes | None = None

    def __len__(self) -> int:
        return len(self.array)

    def __getstate__(self) -> SharedBytes | bytes:
        if context.get_spawning_popen() is None or not len(self.array):
            return self.array.tobytes()
        if self._shared is None:
            self._shared = SharedBytes(self.array.tobytes())
        return self._shared

    def __setstate__(self, state: SharedBytes | bytes) -> None:
        self._shared = state if isinstance(state, SharedBytes) else None
        memory = state.memory if isinstance(state, SharedBytes) else state
        self.array = np.frombuffer(memory, np.int64)
        self.array.flags.writeable = False


def select_rows(indices: Any, n: int) -> npt.NDArray[np.int64]:
    """Return the positions that a slice, integers or a boolean mask select from `n` samples."""
    if isinstance(indices, slice):
        return np.arange(*indices.indices(n), dtype=np.int64)
    chosen = np.asarray(indices if hasattr(indices, "__len__") else list(indices))
    if chosen.dtype == np.bool_:
        if chosen.shape != (n,):
            raise ValueError(f"a boolean mask must have shape ({n},), one value per sample; got {chosen.shape}")
        return np.flatnonzero(chosen)
    if chosen.size and not np.issubdtype(chosen.dtype, np.integer):
        raise TypeError(f"indices must be integers; got {chosen.dtype}")
    chosen = chosen.astype(np.int64).reshape(-1)
    if chosen.size and not -n <= chosen.min() <= chosen.max() < n:
        found = f"{chosen.min()} to {chosen.max()}"
        raise IndexError(f"indices must be in [{-n}, {n}) for a dataset of {n} samples; got {found}")
    return np.where(chosen < 0, chosen + n, chosen)


def split_rows(n: int, fractions: Sequence[float], seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the row numbers of each part, ascending. Parts have `n` times their fraction, rounded, and cover all."""
    shares = [float(share) for share in fractions]
    if not shares or min(shares) < 0 or abs(math.fsum(shares) - 1) > 1e-6:
        raise ValueError(f"the fractions of a split must be >= 0 and add up to 1; got {shares}")
    ordered = np.argsort(_shuffle(np.arange(n, dtype=np.uint64), seed), kind="stable").astype(np.int64)
    start = 0
    for k in range(len(shares)):
        stop = n if k == len(shares) - 1 else min(n, round(n * math.fsum(shares[: k + 1])))
        yield np.sort(ordered[start:stop])
        start = stop


def _shuffle(values: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Map distinct numbers to distinct pseudo-random numbers."""
    z = values + np.uint64((seed * _GOLDEN + _GOLDEN) & _MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def named_rows(column: pa.ChunkedArray, name: str, where: str) -> npt.NDArray[np.int64]:
    """Return the rows in which a column of strings has this value. If there are none, KeyError lists the values."""
    encoded = column.combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if name not in names:
        raise KeyError(f"{where} has no split {name!r}; its splits are {', '.join(map(repr, sorted(names))) or 'none'}")
    return np.flatnonzero(to_numpy(encoded.indices) == names.index(name))
