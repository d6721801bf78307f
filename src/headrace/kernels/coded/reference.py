# SPDX-License-Identifier: Apache-2.0
"""Coded tiles in plain NumPy: classes, numbers, and a residual from each of them (spec §6.5)."""

from __future__ import annotations

import numpy as np

from headrace.kernels._batch import BLOCK, BLOCK_SAMPLES
from headrace.kernels._reference_tile import Tile, average, check, unblock, unzigzag
from headrace.kernels._status import Reason
from headrace.kernels.finish.reference import undo_color
from headrace.kernels.tables import Ints
from headrace.kernels.wave.reference import undo_prediction

FIRST_CLASS, ESCAPE, PAIR_BITS, STRIP = 8, 12, 4, 32
ZERO, PAIRS, PLAIN, TAIL, HALF, DOUBLE, AS_IS = range(7)
# Of each class with n = 8 and n = 16: the raw bits and the code.
_SIMPLE = [(0, code) for code in (ZERO, PAIRS, PLAIN, TAIL, HALF, DOUBLE)]
_BY_TURNS = [(s, code) for s in range(1, 13) for code in (PLAIN, HALF)]
CLASSES = {
    8: np.array([*_SIMPLE, *_BY_TURNS[:6], (4, PLAIN), (5, PLAIN), (6, PLAIN), (8, AS_IS)]),
    16: np.array([*_SIMPLE, *_BY_TURNS, (13, PLAIN), (16, AS_IS)]),
}
NUMBERS = np.array([0, 32, 64, 64, 64, 64, 0])  # of each code


def decode(tile: Tile) -> Ints:
    """Return the values of a tile [channels, height, width]."""
    codes = tile.color()
    ids = np.array([tile.predictors(-(-tile.width // STRIP), 4) for _ in range(tile.channels)])
    shape = tile.channels, -(-tile.height // BLOCK), -(-tile.width // BLOCK)
    class_bytes, section_bytes = tile.number(2), tile.numbers((tile.channels,), 2)
    n_escapes = tile.number(2) if tile.n == 16 else 0
    classes = _classes(tile.unary(class_bytes, int(np.prod(shape))).reshape(shape), tile.n)
    s, code = CLASSES[tile.n][classes.flatten()].T[..., None]  # [blocks, 1]
    raw = np.array([tile.samples(BLOCK_SAMPLES, int(b)) for b in s.flat])  # [blocks, 64]
    counts = NUMBERS[code].reshape(tile.channels, -1).sum(1)
    numbers = [tile.unary(int(n_bytes), count) for n_bytes, count in zip(section_bytes, counts, strict=True)]
    escapes = tile.numbers((n_escapes,), 2)

    q = _numbers_of_samples(np.concatenate(numbers), code)
    extra = _extra(tile, q, code)
    escaped = (tile.n == 16) & (q >= ESCAPE) & (code >= PLAIN) & (code <= DOUBLE)
    check(escaped.sum() == n_escapes, Reason.ESCAPES)
    z = (_high(q, extra, code) << s) + raw
    z[escaped] = escapes
    top = (1 << tile.n) - 1
    residuals = unblock(unzigzag(z & top, top).reshape(*shape, BLOCK, BLOCK), tile.height, tile.width)
    of_columns = ids.repeat(STRIP, 1)[:, : tile.width]
    return undo_color(undo_prediction(residuals, of_columns, tile.n), codes, tile.n)


def _classes(numbers: Ints, n: int) -> Ints:
    """Return the class of each block, from the numbers [planes, rows, columns]."""
    classes: Ints = np.zeros_like(numbers)
    steps = unzigzag(numbers, 255)
    for y, x in np.ndindex(numbers.shape[1:]):
        left, above = classes[:, y, x - 1], classes[:, y - 1, x]
        predicted = average(left, above) if x and y else left if x else above if y else FIRST_CLASS
        classes[:, y, x] = predicted + steps[:, y, x] & 255
    check((classes < len(CLASSES[n])).all(), Reason.CLASS)
    return classes


def _is_second(code: Ints) -> Ints:
    """Return whether each sample [blocks, 64] is the second of a pair, which share a number and its extra bits."""
    second: Ints = (code == PAIRS) & (np.arange(BLOCK_SAMPLES) % 2 == 1)
    return second


def _numbers_of_samples(numbers: Ints, code: Ints) -> Ints:
    """Return the number that each sample depends on [blocks, 64]; 0 where there is none."""
    per_block, sample = NUMBERS[code], np.arange(BLOCK_SAMPLES)
    places = per_block.cumsum()[:, None] - per_block + np.where(code == PAIRS, sample // 2, sample)
    return np.where(per_block > 0, np.append(numbers, 0)[np.minimum(places, len(numbers))], 0)


def _extra(tile: Tile, q: Ints, code: Ints) -> Ints:
    """Read the extra bits of each sample, the last part of a tile."""
    one = ((code == HALF) & (q < 1)) | ((code == DOUBLE) & (q < 2)) | ((code == TAIL) & (q >= 1) & (q <= 2))
    of_pair = sum((q >= 1 << bit).astype(np.int64) for bit in range(PAIR_BITS))
    counts = np.where(code == PAIRS, of_pair, one)
    own = np.where(_is_second(code), 0, counts)
    starts = own.cumsum().reshape(own.shape) - counts
    bits = np.append(tile.last_bits(int(own.sum())), np.zeros(PAIR_BITS, np.uint8)).astype(np.int64)
    return sum((np.where(bit < counts, bits[starts + bit], 0) << bit for bit in range(PAIR_BITS)), np.zeros_like(q))


def _high(q: Ints, extra: Ints, code: Ints) -> Ints:
    """Return the value above the raw bits, modulo 256."""
    half, double, tail = ((code == each).astype(np.int64) for each in (HALF, DOUBLE, TAIL))
    beyond = (half + double) * (q >= 1) + (double + tail) * (q >= 2) + tail * (q >= 3)
    pair = np.where(_is_second(code), q - extra, extra)
    return np.where(code == PAIRS, pair, np.where(code == AS_IS, 0, q + beyond + extra)) & 255
