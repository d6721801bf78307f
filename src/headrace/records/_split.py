# SPDX-License-Identifier: Apache-2.0
"""Random splits that are the same on every machine and with every version of NumPy.

Rows are ordered by a keyed bijection of their numbers (the finaliser of SplitMix64), and the order is cut at the
fractions. NumPy's own permutations may change between versions, and a validation sample must never slip into training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix(values: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Map distinct numbers to distinct, random-looking ones."""
    z = values + np.uint64((seed * _GOLDEN + _GOLDEN) & _MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def split_rows(n: int, fractions: Sequence[float], seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield each part's row numbers, ascending; the parts have `n` times their fractions, rounded, and cover all."""
    shares = [float(share) for share in fractions]
    if not shares or min(shares) < 0 or abs(math.fsum(shares) - 1) > 1e-6:
        raise ValueError(f"the fractions of a split must be positive and add up to 1; got {shares}")
    places = mix(np.arange(n, dtype=np.uint64), seed)
    ordered = np.argsort(places, kind="stable").astype(np.int64)
    start = 0
    for k in range(len(shares)):
        stop = n if k == len(shares) - 1 else min(n, round(n * math.fsum(shares[: k + 1])))
        yield np.sort(ordered[start:stop])
        start = stop


def rows_named(column: pa.ChunkedArray, name: str, where: str) -> npt.NDArray[np.int64]:
    """Return the rows at which a column of strings has a value; a KeyError lists the values if there are none."""
    from headrace.records.arrays import to_numpy  # noqa: PLC0415

    encoded = column.combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if name not in names:
        raise KeyError(f"{where} has no split {name!r}; its splits are {', '.join(map(repr, sorted(names))) or 'none'}")
    return np.flatnonzero(to_numpy(encoded.indices) == names.index(name))
