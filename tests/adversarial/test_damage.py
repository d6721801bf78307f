# SPDX-License-Identifier: Apache-2.0
"""Any damage to a file raises `CorruptImage`: it never gives a wrong pixel, and never another error."""

from __future__ import annotations

import numpy as np
import pytest
from tests.adversarial.specimens import SPECIMENS
from tests.codec.implementations import ORACLE, Implementation, Native, writer
from tests.codec.pictures import Recipe

import headrace
from headrace.errors import CorruptImage

VERSION = 4  # the byte's offset

specimens = pytest.mark.parametrize("name", SPECIMENS)


def assert_corrupt(implementation: Implementation, data: bytes | bytearray, how: str) -> None:
    try:
        implementation.decode(data)
    except CorruptImage:
        return
    pytest.fail(f"{how} went unnoticed")


@specimens
def test_the_specimens_are_sound(native: Native, name: str) -> None:
    """Else the tests below would prove nothing."""
    np.testing.assert_array_equal(native.decode(SPECIMENS[name]), ORACLE.decode(SPECIMENS[name]))


@specimens
def test_every_single_bit_flip(implementation: Implementation, name: str) -> None:
    data = bytearray(SPECIMENS[name])
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        assert_corrupt(implementation, data, f"bit {bit % 8} of byte {bit // 8}, flipped,")
        data[bit // 8] ^= 1 << bit % 8


@specimens
def test_truncation_at_every_byte(implementation: Implementation, name: str) -> None:
    data = SPECIMENS[name]
    for n_bytes in range(len(data)):
        assert_corrupt(implementation, data[:n_bytes], f"the end at byte {n_bytes} of {len(data)}")


@specimens
def test_appended_bytes(implementation: Implementation, name: str) -> None:
    data = SPECIMENS[name]
    for more in (b"\0", b"\1", b"\xff", bytes(64), data[-9:], data):
        assert_corrupt(implementation, data + more, f"{len(more)} bytes more")


@specimens
def test_short_bursts(implementation: Implementation, name: str) -> None:
    """CRC-32C finds every burst of up to 32 bits. Only the version is read before it: two flips there make another."""
    data = SPECIMENS[name]
    rng = np.random.default_rng(3)
    for at in range(len(data)):
        n_bytes = min(int(rng.integers(1, 5)), len(data) - at)
        if at <= VERSION < at + n_bytes:
            continue
        burst = bytes(a ^ b for a, b in zip(data[at : at + n_bytes], rng.integers(1, 256, n_bytes), strict=True))
        assert_corrupt(implementation, data[:at] + burst + data[at + n_bytes :], f"a burst at byte {at}")


def test_tiles_in_each_others_place(implementation: Implementation) -> None:
    """Two tiles of equal length, exchanged: each sum is right, at the wrong place."""
    image = Recipe(64, 8, content="noise").render()
    data = implementation.encode(image)
    half = len(data) - 32 * 8 - 1
    assert len(data[half:]) == len(data[half - 257 : half]) == 257

    assert_corrupt(implementation, data[: half - 257] + data[half:] + data[half - 257 : half], "the exchange of tiles")


def test_every_bit_flip_of_the_encoders_own_files(native: Native, mode: str) -> None:
    for recipe in (Recipe(12, 17, 3), Recipe(35, 9, 1, "uint16"), Recipe(20, 20, 4, content="screen")):
        data = bytearray(native.encode(recipe.render(), mode=mode, metadata={"note": b"here"}))
        for bit in range(8 * len(data)):
            data[bit // 8] ^= 1 << bit % 8
            assert_corrupt(native, data, f"bit {bit % 8} of byte {bit // 8}, flipped,")
            data[bit // 8] ^= 1 << bit % 8


def test_what_is_no_image_at_all(implementation: Implementation) -> None:
    for data in (b"", b"\x89", b"\x89HRI", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(24), bytes(1000), b"\xff" * 1000):
        assert_corrupt(implementation, data, f"{data[:8]!r}")


def test_inspect_notices_damage_before_the_tiles() -> None:
    data = SPECIMENS["metadata"]
    headrace.inspect(data)
    start, n_tiles = writer.index_offset(data)
    for bit in range(8 * (start + 8 * n_tiles + 4)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptImage):
            headrace.inspect(damaged)
