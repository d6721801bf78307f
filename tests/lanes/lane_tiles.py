# SPDX-License-Identifier: Apache-2.0
"""A lane-parallel decode of one tile of each kind that has chains, as a warp would do it (spec/image.md §8).

It models how a sound tile is decoded and checks nothing: that is the oracle's task. Each function returns the channels'
coded values [channels, h, w].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import decoder
import numpy as np
from lane_steps import (
    LANES,
    Steps,
    bits_at,
    exclusive_sums,
    inclusive_sums,
    samples_at,
    unary_numbers,
    unzigzag,
    wave,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

CODE_NAMES = ["zero", "raw", "pairs", *decoder.CODES]


def code_tables() -> tuple[Ints, Ints]:
    """Extra bits and base of each number, by code; of pairs and blocks without numbers the base is not used."""
    extra, base = np.zeros((2, len(CODE_NAMES), 256), np.int64)
    extra[CODE_NAMES.index("pairs")] = [min(q.bit_length(), decoder.PAIR_BITS) for q in range(256)]
    for code, (bits, first, beyond) in decoder.CODES.items():
        row = CODE_NAMES.index(code)
        extra[row, : len(bits)] = bits
        base[row] = np.arange(256) + beyond
        base[row, : len(first)] = first
    return extra, base


EXTRA, BASE = code_tables()


def octets(data: bytes) -> Ints:
    return np.frombuffer(data, np.uint8).astype(np.int64)


def squares_of(h: int, w: int, size: int) -> tuple[Ints, Ints]:
    """Of each pixel [h, w]: the number of its block or group, and its place within."""
    y, x = np.mgrid[:h, :w]
    return y // size * -(-w // size) + x // size, y % size * size + x % size


def decode_packed(tile: bytes, n: int, channels: int, h: int, w: int, steps: Steps) -> Ints:
    cursor = decoder.Cursor(tile[1:])
    codes = decoder.read_colour(cursor, channels)
    ids = decoder.read_predictors(cursor, channels, 2)
    section = cursor.take(cursor.number(2, "size"), "widths")
    packed = octets(cursor.take(cursor.left(), "groups"))

    down, across = -(-h // 4), -(-w // 4)
    deltas = unzigzag(unary_numbers(section, steps)).reshape(channels, down, across)
    widths = sum_widths(deltas, steps).reshape(channels, -1)  # [planes, groups]
    starts = exclusive_sums(2 * widths.ravel(), steps).reshape(channels, -1)

    group, place = squares_of(h, w, 4)
    b = widths[:, group]  # [planes, h, w]
    samples = samples_at(packed, starts[:, group], place, b, 16, steps)
    residuals = np.where((b > 0) & (samples >> np.maximum(b - 1, 0) > 0), samples - (1 << b), samples)
    planes = predict(residuals, [[i] * w for i in ids], n, 1, steps)
    return undo_colour(planes, codes, n, steps)


def sum_widths(deltas: Ints, steps: Steps) -> Ints:
    """A prefix sum along the first row of groups, then a sum down the columns."""
    widths = deltas.copy()
    widths[:, 0] = inclusive_sums(deltas[:, 0], steps) + decoder.FIRST_WIDTH
    for row in range(1, deltas.shape[1]):
        widths[:, row] += widths[:, row - 1]
        steps.take()
    return widths % 256


def decode_coded(tile: bytes, n: int, channels: int, h: int, w: int, steps: Steps) -> Ints:
    cursor = decoder.Cursor(tile[1:])
    codes = decoder.read_colour(cursor, channels)
    ids = [decoder.read_predictors(cursor, -(-w // 32), 4) for _ in range(channels)]
    class_bytes = cursor.number(2, "size")
    unary_bytes = cursor.numbers(channels, 2, "sizes")
    n_escapes = cursor.number(2, "number of escapes") if n == 16 else 0
    class_section = cursor.take(class_bytes, "classes")

    down, across = -(-h // 8), -(-w // 8)
    deltas = unzigzag(unary_numbers(class_section, steps)).reshape(channels, down, across)
    classes = class_wave(deltas, steps).reshape(channels, -1)  # [planes, blocks]
    table = decoder.CLASSES_8 if n == 8 else decoder.CLASSES_16
    s_of_class, code_of_class, numbers_of_class = np.array(
        [(s, CODE_NAMES.index(code), decoder.NUMBERS_OF_CODE[code]) for s, code in table]
    ).T
    s, code, n_numbers = s_of_class[classes], code_of_class[classes], numbers_of_class[classes]

    raw_starts = exclusive_sums(8 * s.ravel(), steps).reshape(channels, -1)
    raw = octets(cursor.take(int(8 * s.sum()), "raw bits"))
    sections = [cursor.take(size, "unary section") for size in unary_bytes]
    escapes = np.array([*cursor.numbers(n_escapes, 2, "escapes"), 0])  # one to spare
    extra = octets(cursor.take(cursor.left(), "extra bits"))
    numbers = np.concatenate([*steps.side_by_side(unary_numbers, sections), [0]])  # of all planes; one to spare
    first_number = exclusive_sums(n_numbers.ravel(), steps).reshape(channels, -1)

    # From here on each of the 64 samples of a block [planes, blocks, 64] finds its own bits.
    place = np.arange(64)
    pairs = (code == CODE_NAMES.index("pairs"))[..., None]
    index = np.minimum(first_number[..., None] + np.where(pairs, place // 2, place), len(numbers) - 1)
    q = np.where(n_numbers[..., None] > 0, numbers[index], 0)
    e = EXTRA[code[..., None], q]
    escaped = (n == 16) & (n_numbers[..., None] == 64) & (q >= decoder.ESCAPE)
    e_of_number, escape_of_number = np.zeros((2, len(numbers)), np.int64)
    e_of_number[index[n_numbers > 0]] = e[n_numbers > 0]
    escape_of_number[index[n_numbers == 64]] = escaped[n_numbers == 64]
    steps.take()
    x = bits_at(extra, exclusive_sums(e_of_number, steps)[index], e, steps)
    single = BASE[code[..., None], q] + x
    high = np.where(pairs, np.where(place % 2 == 0, x, q - x), single) % 256
    low = samples_at(raw, raw_starts[..., None], place, s[..., None], 64, steps)
    z = ((high << s[..., None]) + low) % (1 << n)
    if n == 16:
        z = np.where(escaped, escapes[exclusive_sums(escape_of_number, steps)[index]], z)

    block, place_of_pixel = squares_of(h, w, 8)
    residuals = unzigzag(z, n)[:, block, place_of_pixel]  # [planes, h, w]
    columns = [np.repeat(strips, 32)[:w].tolist() for strips in ids]
    skew = 2 if max(map(max, ids)) > 2 else 1
    planes = predict(residuals, columns, n, skew, steps)
    return undo_colour(planes, codes, n, steps)


def class_wave(deltas: Ints, steps: Steps) -> Ints:
    """A wavefront over the grid of blocks: lane r takes row r, one block behind lane r - 1; planes side by side."""
    channels, down, across = deltas.shape
    rows = np.arange(LANES)

    def value(x: Ints, west: Ints, north: Ints, _north_west: Ints, _north_east: Ints) -> Ints:
        left = np.where(x == 0, north, west)
        above = np.where(rows == 0, west, north)
        start = (x == 0) & (rows == 0)
        predicted = np.where(start, decoder.FIRST_CLASS, (left + above + 1) >> 1)
        delta = deltas[:, np.minimum(rows, down - 1), np.minimum(x, across - 1)]
        return (predicted + delta) % 256

    return wave((channels, down, across), 1, value, steps)


def predict(residuals: Ints, ids: Sequence[Sequence[int]], n: int, skew: int, steps: Steps) -> Ints:
    """Residuals [planes, h, w] to plane values; `ids` has the predictor of each column of each plane."""
    channels, h, w = residuals.shape
    rows = np.arange(LANES)
    predictor = np.array(ids)  # [planes, w]

    def avg(a: Ints, b: Ints) -> Ints:
        return (a + b + 1) >> 1

    def value(x: Ints, west: Ints, north: Ints, north_west: Ints, north_east: Ints) -> Ints:
        north_east = np.where(x == w - 1, north, north_east)
        low, high = np.minimum(west, north), np.maximum(west, north)
        med = low + high - np.clip(north_west, low, high)
        flat, soft = avg(west, north), avg(west, avg(north, north_east))
        predicted = np.choose(predictor[:, x], [flat, med, avg(med, flat), soft, avg(med, soft)])
        predicted = np.where(x == 0, north, predicted)
        predicted = np.where(rows == 0, np.where(x == 0, 1 << n - 1, west), predicted)
        return (predicted + residuals[:, np.minimum(rows, h - 1), x]) % (1 << n)

    return wave((channels, h, w), skew, value, steps)


def undo_colour(planes: Ints, codes: list[int], n: int, steps: Steps) -> Ints:
    """Every pixel by itself, one channel after the other."""
    channels = np.zeros_like(planes)
    for plane, c in zip(planes, decoder.coded_order(len(planes)), strict=True):
        channels[c] = plane
        if codes[c]:
            near = channels[c - 1 if c > 0 else 1]
            far = channels[c - 2] if codes[c] == 2 else near
            channels[c] = (plane + ((near + far + 1) >> 1) - (1 << n - 1)) % (1 << n)
        steps.take()
    return channels


def decode_palette(tile: bytes, n: int, channels: int, h: int, w: int, steps: Steps) -> Ints:
    cursor = decoder.Cursor(tile[1:])
    count = cursor.number(1, "count")
    colours = np.array([cursor.numbers(channels, n // 8, "colours") for _ in range(count)])
    blocks = -(-h // 8) * -(-w // 8)
    block_flags = bits_of(octets(cursor.take(-(-blocks // 8), "flags"))).ravel()[:blocks]
    row_flags = octets(cursor.take(int(block_flags.sum()), "flags"))
    sample_flags = octets(cursor.take(int(bits_of(row_flags).sum()), "flags"))
    numbers = octets(cursor.take(cursor.left(), "numbers"))

    # Down the levels of flags: what is flagged finds its byte on the next level by a prefix sum of population counts.
    block_index = exclusive_sums(block_flags, steps)
    rows = spread(block_flags, block_index, row_flags)  # [blocks], a byte
    row_index = exclusive_sums(bits_of(rows).ravel(), steps)
    samples = spread(bits_of(rows).ravel(), row_index, sample_flags)  # [8 blocks], a byte
    sample_index = exclusive_sums(bits_of(samples).ravel(), steps)
    flags = bits_of(samples).reshape(blocks, 64)
    b = np.int64((count - 1).bit_length())
    exceptions = bits_at(numbers, sample_index * b, b, steps).reshape(blocks, 64)

    block, place = squares_of(h, w, 8)
    flag, exception = flags[block, place], exceptions[block, place]  # [h, w]
    lanes = np.arange(LANES)

    def value(x: Ints, west: Ints, north: Ints, north_west: Ints, _north_east: Ints) -> Ints:
        predicted = np.where(x == 0, north, np.where(west == north_west, north, west))
        predicted = np.where(lanes == 0, np.where(x == 0, 0, west), predicted)
        y = np.minimum(lanes, h - 1)
        return np.where(flag[y, x] == 1, exception[y, x], predicted)

    picture = wave((1, h, w), 1, value, steps)[0]
    steps.take()
    return np.moveaxis(colours[picture], 2, 0)


def bits_of(data: Ints) -> Ints:
    """The eight bits of each byte."""
    return data[..., None] >> np.arange(8) & 1


def spread(flags: Ints, index: Ints, values: Ints) -> Ints:
    """The value of each flagged item, 0 for the others."""
    return np.where(flags == 1, np.append(values, 0)[np.minimum(index, len(values))], 0)
