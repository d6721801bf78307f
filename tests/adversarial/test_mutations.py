# SPDX-License-Identifier: Apache-2.0
"""Behind checksums that match, any bytes mean the same to all targets and the oracle: the same pixels, or an error."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.adversarial.specimens import SPECIMENS
from tests.codec.implementations import IMPLEMENTATIONS, NATIVES, Implementation, writer

from headrace.errors import CorruptImage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.codec.pictures import Image

specimens = pytest.mark.parametrize("name", SPECIMENS)


def outcome(implementation: Implementation, data: bytes) -> Image | None:
    try:
        return implementation.decode(data)
    except CorruptImage:
        return None


def assert_agreement(implementations: Sequence[Implementation], data: bytes) -> bool:
    """Whether the implementations, which must agree, accept the file."""
    first, *others = [outcome(implementation, data) for implementation in implementations]
    for implementation, other in zip(implementations[1:], others, strict=True):
        agrees = (first is None) == (other is None) and (first is None or other is None or np.array_equal(first, other))
        assert agrees, f"{implementation.name} and {implementations[0].name} differ on {data.hex()}"
    return first is not None


def mutations(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Files whose last tile has changed bytes, or some more or fewer, and whose index and sums agree with that."""
    rng = np.random.default_rng(seed)
    start, n_tiles = writer.index_offset(data)
    at = start + 4 * (n_tiles - 1)
    (length,) = struct.unpack_from("<I", data, at)
    head, original = data[:-length], data[-length:]
    for _ in range(count):
        tile = bytearray(original)
        for _ in range(int(rng.integers(1, 4))):
            where = int(rng.integers(0, len(tile)))
            match rng.integers(0, 6):
                case 0:
                    tile[where] = rng.integers(0, 256)
                case 1:
                    tile[where:where] = rng.bytes(int(rng.integers(1, 4)))
                case 2 if len(tile) > 4:
                    del tile[where : where + int(rng.integers(1, 4))]
                case _:
                    tile[where] ^= 1 << int(rng.integers(0, 8))
        yield writer.patch(head + tile, at, struct.pack("<I", len(tile)))


@specimens
def test_targets_agree_on_mutations(name: str) -> None:
    accepted = [assert_agreement(NATIVES, data) for data in mutations(SPECIMENS[name], 1, 2000)]

    assert not all(accepted)


@specimens
def test_the_oracle_agrees_on_mutations(name: str) -> None:
    for data in mutations(SPECIMENS[name], 2, 100):
        assert_agreement(IMPLEMENTATIONS, data)


@specimens
def test_every_sealed_bit_flip_of_a_tile(name: str) -> None:
    """Each bit by itself: the oracle's word on what it means is the targets' too."""
    data = bytearray(SPECIMENS[name])
    start, n_tiles = writer.index_offset(data)
    bits = range(8 * (start + 8 * n_tiles + 4), 8 * len(data))
    for bit in bits[:: max(1, len(bits) // 250)]:
        data[bit // 8] ^= 1 << bit % 8
        assert_agreement(IMPLEMENTATIONS, writer.reseal(bytes(data)))
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.slow
@specimens
def test_everyone_agrees_on_many_mutations(name: str) -> None:
    for data in mutations(SPECIMENS[name], 3, 20_000):
        if assert_agreement(NATIVES, data):
            assert_agreement(IMPLEMENTATIONS, data)
