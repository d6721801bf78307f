# SPDX-License-Identifier: Apache-2.0
"""32 lanes decode a tile of every kind to the oracle's pixels, in no more dependent steps than the spec's §8 grants."""

from __future__ import annotations

from math import ceil, log2

import decoder
import lane_tiles
import numpy as np
import pytest
import writer
from lane_steps import Steps, exclusive_sums, unary_numbers

SHAPES = [(32, 256), (32, 128), (32, 32), (29, 61), (32, 33), (5, 200), (1, 40), (32, 1), (1, 1)]
DECODERS = {
    writer.PALETTE: lane_tiles.decode_palette,
    writer.PACKED: lane_tiles.decode_packed,
    writer.CODED: lane_tiles.decode_coded,
}


def oracle(tile, n, channels, h, w):
    """What the oracle makes of a tile, without a file around it."""
    mode = "fast" if tile[0] == writer.PACKED else "dense"
    header = decoder.Header(w, h, channels, f"uint{n}", mode, n, 256, {}, [], [])
    return np.array(decoder.decode_tile(tile, header, decoder.Tile(0, 0, h, w, 0, len(tile), decoder.crc32c(tile))))


def log2_steps(items):
    return ceil(log2(max(2, items)))


def granted_steps(kind, n, channels, h, w):
    """The bound of §8: logarithms for scans, a wave over the columns, and a constant for what lies between."""
    samples = h * w * channels
    scan = log2_steps(samples * n // 8)  # no section has more bytes than the raw tile
    unary = scan + 9
    wave = w + (2 if kind == writer.CODED else 1) * (h - 1)
    if kind == writer.PALETTE:
        return 3 * log2_steps(64 * ceil(h / 8) * ceil(w / 8)) + wave + 4
    if kind == writer.PACKED:
        return unary + log2_steps(ceil(w / 4)) + 8 + scan + 4 + wave + channels
    classes = ceil(w / 8) + 3
    offsets = (4 if n == 16 else 3) * log2_steps(64 * channels * ceil(h / 8) * ceil(w / 8) + 1)
    return 2 * unary + classes + offsets + 8 + wave + channels


def check(tile, n, channels, h, w):
    steps = Steps()
    decoded = DECODERS[tile[0]](tile, n, channels, h, w, steps)

    assert np.array_equal(decoded, oracle(tile, n, channels, h, w))
    granted = granted_steps(tile[0], n, channels, h, w)
    assert steps.count <= granted
    assert granted <= w + 62 + 200, "more than a few hundred steps beside the wave"


def slope(rng, n, channels, h, w):
    """Smooth content with some noise, a rough patch and jumps beyond the range."""
    y, x, c = np.ogrid[:h, :w, :channels]
    image = 3 * y + 5 * x + 50 * c + rng.integers(0, 4, (h, w, channels))
    image[: h // 3, : w // 4] += rng.integers(0, 1 << n, (h // 3, w // 4, channels))
    return writer.channels_of(image % (1 << n))


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.mark.parametrize(("h", "w"), SHAPES)
@pytest.mark.parametrize("n", [8, 16])
def test_packed(rng, n, h, w):
    for channels, codes in ((1, [0]), (3, [1, 0, 2])):
        ids = list(range(channels))
        check(writer.packed_of(slope(rng, n, channels, h, w), n, codes, ids).pack(), n, channels, h, w)


@pytest.mark.parametrize(("h", "w"), SHAPES)
@pytest.mark.parametrize("n", [8, 16])
def test_coded(rng, n, h, w):
    strips = -(-w // 32)
    for channels, codes in ((1, [0]), (3, [1, 0, 2])):
        ids = rng.integers(0, 5, (channels, strips)).tolist()
        check(writer.coded_of(slope(rng, n, channels, h, w), n, codes, ids).pack(), n, channels, h, w)


@pytest.mark.parametrize("n", [8, 16])
def test_coded_in_every_class(rng, n):
    """Random symbols in all classes, with escapes and numbers beyond 255; without NE, the wave has a skew of 1."""
    table = writer.class_table(n)
    classes = rng.permutation(np.arange(64) % len(table)).tolist()
    tile = writer.Coded(n, [0], [[0, 1, 2, 0]], 16, [classes], [[]], [[]])
    for s, code in (table[i] for i in classes):
        numbers = rng.geometric(0.3, decoder.NUMBERS_OF_CODE[code]) - 1
        numbers[:1] = rng.integers(0, 600)
        tile.raws[0].append(rng.integers(0, 1 << s, 64).tolist())
        tile.numbers[0] += numbers.tolist()
        if n == 16 and len(numbers) == 64:
            tile.escapes += rng.integers(0, 1 << 16, np.count_nonzero(numbers % 256 >= decoder.ESCAPE)).tolist()
        bits = lane_tiles.EXTRA[lane_tiles.CODE_NAMES.index(code), numbers % 256].tolist()
        tile.extra += [(int(rng.integers(0, 1 << e)), e) for e in bits]
    check(tile.pack(), n, 1, 32, 128)


@pytest.mark.parametrize(("h", "w"), SHAPES)
@pytest.mark.parametrize("n", [8, 16])
def test_palette(rng, n, h, w):
    for channels, count in ((1, 2), (3, 40)):
        values = rng.integers(0, 1 << n, (count, channels))
        labels = rng.integers(0, count, (5, 60)).repeat(7, 0).repeat(9, 1)[:h, :w]
        labels[rng.random((h, w)) < 0.05] = 0
        tile = writer.palette_of(writer.channels_of(values[labels]), n, [[0] * channels, [1] * channels])
        check(tile.pack(), n, channels, h, w)


def test_scans_take_logarithmic_steps():
    steps = Steps()
    sums = exclusive_sums(np.ones(1000, np.int64), steps)

    assert sums.tolist() == list(range(1000))
    assert steps.count == 10


def test_unary_numbers_take_logarithmic_steps(rng):
    numbers = (rng.geometric(0.2, 5000) - 1).tolist()
    steps = Steps()

    assert unary_numbers(writer.pack_unary(numbers), steps).tolist() == numbers
    assert steps.count <= 12 + 9
