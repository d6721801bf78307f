# SPDX-License-Identifier: Apache-2.0
"""Keys and random numbers that depend only on (seed, epoch).

All numbers are unsigned 64-bit integers that wrap around. With G = 0x9E3779B97F4A7C15:

    mix(z):   z ^= z >> 30;  z *= 0xBF58476D1CE4E5B9;  z ^= z >> 27;  z *= 0x94D049BB133111EB;  z ^= z >> 31
    key       mix(mix(seed + stream · G) + (epoch + 1) · G); each use of keys has its own stream number
    draw[i]   mix(key + (i + 1) · G)
"""

from __future__ import annotations

import operator

import numpy as np
import numpy.typing as npt

MAX_SEED = (1 << 64) - 1
MAX_EPOCH = (1 << 32) - 1

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIER = 0xBF58476D1CE4E5B9
_SECOND_MULTIPLIER = 0x94D049BB133111EB
_MASK = (1 << 64) - 1


def mix(z: int) -> int:
    """Mix the bits of a number: the finalizer of SplitMix64, a bijection."""
    z = (z ^ (z >> 30)) * MULTIPLIER & _MASK
    z = (z ^ (z >> 27)) * _SECOND_MULTIPLIER & _MASK
    return z ^ (z >> 31)


def epoch_key(seed: int, epoch: int, stream: int) -> int:
    """Return the key of an epoch for one use."""
    return mix(mix(check_seed(seed) + stream * GOLDEN & _MASK) + (check_epoch(epoch) + 1) * GOLDEN & _MASK)


def draw(key: int, i: int) -> int:
    """Return random number i of a key."""
    return mix(key + (i + 1) * GOLDEN & _MASK)


def draw_many(key: int, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return many random numbers of a key, as `draw` does."""
    z = numbers.astype(np.uint64)
    z += np.uint64(1)
    z *= np.uint64(GOLDEN)
    z += np.uint64(key)
    return _mixed(z)


def draw_each(keys: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int64] | int) -> npt.NDArray[np.uint64]:
    """Return one random number of each key, as `draw` does."""
    return _mixed(keys + (np.atleast_1d(numbers).astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN))


def _mixed(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Do `mix` in place."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(MULTIPLIER)
    z ^= z >> np.uint64(27)
    z *= np.uint64(_SECOND_MULTIPLIER)
    z ^= z >> np.uint64(31)
    return z


def check_seed(seed: int) -> int:
    if not 0 <= operator.index(seed) <= MAX_SEED:
        raise ValueError(f"the seed must be in [0, 2**64); got {seed}")
    return operator.index(seed)


def check_epoch(epoch: int) -> int:
    if not 0 <= operator.index(epoch) <= MAX_EPOCH:
        raise ValueError(f"the epoch must be in [0, 2**32); got {epoch}")
    return operator.index(epoch)
