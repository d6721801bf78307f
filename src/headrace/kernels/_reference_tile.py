# SPDX-License-Identifier: Apache-2.0
"""What the plain references share: a tile that is read from its first byte to its last, in NumPy on the host.

The references decode one tile after the other and follow the text of the spec. They are slow: kernels are compared with
them. A tile that violates a MUST of the spec raises `BadTile`.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.kernels._status import Reason
from headrace.kernels.tables import Ints, TileField

Octets: TypeAlias = npt.NDArray[np.uint8]


class BadTile(Exception):
    """A tile is not valid."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def check(holds: Any, reason: Reason) -> None:
    """Raise BadTile if a condition does not hold."""
    if not holds:
        raise BadTile(reason)


class Tile:
    """The bytes of a tile, and how far they were read."""

    def __init__(self, payload: Octets, fields: Ints) -> None:
        """Take a column of the tile table."""
        start = int(fields[TileField.AT])
        self._data = payload[start : start + int(fields[TileField.LENGTH])]
        self._position = 1  # after the kind
        self.n = int(fields[TileField.BITS])
        self.channels, self.height, self.width = map(
            int, fields[[TileField.CHANNELS, TileField.HEIGHT, TileField.WIDTH]]
        )

    def take(self, count: int) -> Octets:
        """Return the next bytes."""
        start, self._position = self._position, self._position + count
        check(self._position <= len(self._data), Reason.SECTION)
        return self._data[start : self._position]

    def numbers(self, shape: tuple[int, ...], n_bytes: int) -> Ints:
        """Return numbers of `n_bytes` each."""
        return self.take(math.prod(shape) * n_bytes).view(f"<u{n_bytes}").astype(np.int64).reshape(shape)

    def number(self, n_bytes: int) -> int:
        return int(self.numbers((1,), n_bytes)[0])

    def samples(self, count: int, b: int) -> Ints:
        """Return samples of b bits; where b exceeds 8, all low bytes come first (spec §5.1)."""
        if b > 8:
            return self.samples(count, 8) + (self.samples(count, b - 8) << 8)
        return unpack(self.take(count * b // 8), b) if b else np.zeros(count, np.int64)

    def unary(self, n_bytes: int, count: int) -> Ints:
        """Return the numbers of a unary section: the zeros before each one, modulo 256 (spec §5.2)."""
        section = self.take(n_bytes)
        ones = np.flatnonzero(np.unpackbits(section, bitorder="little"))
        check(len(ones) == count and not (n_bytes and section[-1] == 0), Reason.UNARY)
        return np.diff(ones, prepend=-1) - 1 & 255

    def color(self) -> Ints:
        """Return the color code of each channel (spec §5.4)."""
        codes = unpack(self.take(-(-self.channels // 4)), 2)
        highest = np.array([1, 0] + [2] * 62 if self.channels > 1 else [0])[: self.channels]
        check((codes[: self.channels] <= highest).all() and not codes[self.channels :].any(), Reason.COLOR)
        return codes[: self.channels]

    def predictors(self, count: int, highest: int) -> Ints:
        ids = unpack(self.take(-(-count // 2)), 4)
        check(ids.max() <= highest and not ids[count:].any(), Reason.PREDICTOR)
        return ids[:count]

    def last_bits(self, count: int) -> Octets:
        """Return the bits at the end of the tile, one per element; the last byte is padded with zeros."""
        check(len(self._data) - self._position == -(-count // 8), Reason.LENGTH)
        found = np.unpackbits(self.take(-(-count // 8)), bitorder="little")
        check(not found[count:].any(), Reason.PADDING)
        return found[:count]


def unpack(octets: Octets, b: int) -> Ints:
    """Return the samples of b bits, 1 to 8, that these bytes hold back to back."""
    return join_bits(np.unpackbits(octets, bitorder="little"), b)


def join_bits(bits: Octets, b: int) -> Ints:
    """Return the numbers of b bits each."""
    joined: Ints = bits[: len(bits) // b * b].reshape(-1, b).astype(np.int64) @ (1 << np.arange(b))
    return joined


def unzigzag(z: Ints, top: int) -> Ints:
    """Inverse zigzag; `top` is 2^n - 1 (spec §5.3)."""
    return np.where(z & 1 == 0, z >> 1, top - (z >> 1))


def average(a: Ints, b: Ints) -> Ints:
    return a + b + 1 >> 1


def unblock(squares: Ints, height: int, width: int) -> Ints:
    """Return planes [planes, height, width] of squares [planes, down, across, size, size], cut to size."""
    planes, down, across, size, _ = squares.shape
    return squares.swapaxes(2, 3).reshape(planes, down * size, across * size)[:, :height, :width]
