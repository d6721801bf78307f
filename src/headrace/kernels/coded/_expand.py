# SPDX-License-Identifier: Apache-2.0
# Triton compiles these functions: only its own annotations are allowed, and constants are in capitals.
# ruff: noqa: ANN001, ANN202, N803, PLR0915
# mypy: disable-error-code="import, no-untyped-call, no-untyped-def, untyped-decorator"
"""Residuals of coded tiles: one or two programs per plane, one thread per block of 8 x 8 samples, one row at a time.

A thread decodes its block in order, so it needs no communication: the prefix sums of the kernels before it say where
the block's numbers, raw bits, extra bits and escapes start. It reads 32-bit words, one to two per four samples.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels._triton_shared import (
    BAD_ESCAPES,
    BAD_LENGTH,
    BAD_PADDING,
    ROWS,
    TILE_ENTRIES,
    TILE_NUMBERS,
    TILE_VALUES,
    byte,
    is_below,
    load_int64,
    report,
    short,
    tile_header,
)
from headrace.kernels.coded._blocks import (
    BLOCK_WORDS,
    CLASS,
    COUNTS_BEFORE,
    ESCAPE,
    ESCAPES,
    ESCAPES_AT,
    EXTRA_AT,
    FIRST,
    PAIRS,
    PLANE_COUNTS,
    PLANE_FIRST,
    PLANE_WORDS,
    PLANES_AT,
    RAW_AT,
    ROWS_AT,
    code_of,
    four_numbers,
    numbers_of,
    one_bit_numbers,
    pair_bits,
    raw_bits_of,
    tile_words,
)
from headrace.kernels.tables import SIZES, SLICES


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def coded_expand_kernel(
    payload,
    tiles,
    n_tiles,
    chains,
    n_chains,
    numbers,
    entries,
    values,
    status,
    WIDE: tl.constexpr,
    BLOCKS: tl.constexpr,  # of each plane that a program decodes
    CHAINS: tl.constexpr,  # that a program decodes in parallel
):
    chain = tl.program_id(0) * CHAINS + tl.arange(0, CHAINS)[None, :]  # [1, CHAINS]
    live = chain < n_chains
    chain = tl.where(live, chain, 0)
    tile = tl.load(chains + chain)
    plane = tl.load(chains + n_chains + chain)
    base, length, channels, n, h, w = tile_header(payload, tiles, n_tiles, tile)
    across = (w + 7) // 8
    blocks = (h + 7) // 8 * across
    words = entries + load_int64(tiles, n_tiles, TILE_ENTRIES, tile)
    own = words + PLANES_AT + plane * PLANE_WORDS
    extra_before, escapes_before = counts_before(words, plane, live)

    start = tl.program_id(1) * BLOCKS
    block = start + tl.arange(0, BLOCKS)[:, None]  # [BLOCKS, 1]
    inside = live & (block < blocks)  # [BLOCKS, CHAINS] from here on
    entry = words + PLANES_AT + PLANE_WORDS * channels + (plane * blocks + block) * BLOCK_WORDS
    kind = tl.load(entry + CLASS, mask=inside, other=0)
    row = own + ROWS_AT + 2 * (block // across)
    raw_at = tl.load(row, mask=inside, other=0) + tl.load(entry + RAW_AT, mask=inside, other=0)
    first = tl.load(row + 1, mask=inside, other=0) + tl.load(entry + FIRST, mask=inside, other=0)
    counts = tl.load(entry + COUNTS_BEFORE, mask=inside, other=0)
    extra_bit = 8 * tl.load(words + EXTRA_AT) + extra_before + (counts & 0xFFFF)
    escape = escapes_before + (counts >> 16)
    n_escapes = tl.load(words + ESCAPES)
    escapes_at = tl.load(words + ESCAPES_AT)

    code = code_of(kind, n)
    s = raw_bits_of(kind, n)
    paired = code == PAIRS
    there = inside & (numbers_of(kind, n) > 0)
    low, count = one_bit_numbers(code)
    high_mask = tl.where(there, 255, 0)
    low_bits = tl.minimum(s, 8) if WIDE else s
    top = (1 << n) - 1

    from_tile = tile_words(base)
    tile_end = tl.where(inside, (length + 3) >> 2, 0)
    positions = (numbers + load_int64(tiles, n_tiles, TILE_NUMBERS, tile)).to(tl.pointer_type(tl.uint32), bitcast=True)
    positions += first >> 2
    before = tl.load(positions - 1, mask=there & (first > tl.load(own + PLANE_FIRST)), other=0xFFFFFFFF)
    y = block // across * 8
    x = block % across * 8
    slot = values + load_int64(tiles, n_tiles, TILE_VALUES, tile) + plane.to(tl.int64) * (w + 2 * (ROWS - 1)) * ROWS
    slot += (x + 2 * y) * ROWS + y
    columns = tl.where(inside, w - x, 0)
    for step in range(tl.max(tl.where(live & (start < blocks), tl.minimum(h, 8), 0))):
        left = tl.load(positions, mask=there, other=0)
        right = tl.load(positions + 1, mask=there & (paired == 0), other=0)
        left_numbers = four_numbers(left, before)
        right_numbers = tl.where(paired, left_numbers, four_numbers(right, left))
        before = tl.where(paired, left, right)
        positions += tl.where(paired, 1, 2)
        extra = bit_window(from_tile, extra_bit, tile_end)
        wanted = tl.where(y + step < h, columns, 0)
        for c in tl.static_range(8):
            if c % 4 == 0:
                sample = step * 8 + c
                raw = bit_window(from_tile, 8 * raw_at + sample * low_bits, tile_end)
                if WIDE:
                    more_raw = bit_window(from_tile, 8 * (raw_at + 64) + sample * (s - low_bits), tile_end)
            word = left_numbers if c < 4 else right_numbers
            q = ((word >> tl.where(paired, 8 * (c // 2), 8 * (c % 4))) & 255).to(tl.int32)
            single_bits = tl.where(is_below(q - low, count), 1, 0)
            if c % 2 == 0:
                n_bits = tl.where(paired, pair_bits(q), single_bits)
                bits = extra & ((1 << n_bits) - 1)
                of_pair = bits
                pair_value = of_pair
            else:
                n_bits = single_bits
                bits = extra & n_bits
                pair_value = q - of_pair
            extra >>= n_bits
            extra_bit += n_bits
            value = tl.where(paired, pair_value, q + tl.minimum(tl.maximum(q - low, 0), count) + bits)
            z = ((value & high_mask) << s) + ((raw >> (c % 4) * low_bits) & ((1 << low_bits) - 1))
            if WIDE:
                z += ((more_raw >> (c % 4) * (s - low_bits)) & ((1 << (s - low_bits)) - 1)) << 8
                escaped = there & (n == 16) & (paired == 0) & (q >= ESCAPE)
                in_escapes = escaped & (escape < n_escapes)
                stated = short(base, escapes_at + 2 * escape, length, in_escapes)
                z = tl.where(escaped, stated, z)
                escape += tl.where(escaped, 1, 0)
            z &= top
            residual = tl.where(z & 1 == 0, z >> 1, ~(z >> 1))  # the wave takes it modulo 2^n
            tl.store(slot + c * ROWS, residual.to(tl.int16) if WIDE else residual.to(tl.uint8), mask=c < wanted)
        slot += 2 * ROWS + 1

    flaw = end_flaw(base, words, own, extra_before, escapes_before, length)
    report(status, tiles, n_tiles, tile, tl.where(live & (plane == channels - 1) & (start == 0), flaw, 0))


@triton.jit
def counts_before(words, plane, live):
    """How many extra bits and escapes the earlier planes of a tile have."""
    earlier = tl.arange(0, 64)[:, None]
    counts = tl.load(
        words + PLANES_AT + earlier * PLANE_WORDS + PLANE_COUNTS, mask=live & (earlier < plane), other=0
    )  # [64, CHAINS]
    return tl.sum(counts & 0xFFFF, 0)[None, :], tl.sum(counts >> 16, 0)[None, :]


@triton.jit
def bit_window(words, bit, end):
    """The 32 bits of a tile that start at bit number `bit`; 0 for words outside of the tile."""
    at = bit >> 5
    low = tl.load(words + at, mask=is_below(at, end), other=0)
    high = tl.load(words + at + 1, mask=is_below(at + 1, end), other=0)
    return ((high.to(tl.uint64) << 32 | low) >> (bit & 31).to(tl.uint64)).to(tl.uint32).to(tl.int32, bitcast=True)


@triton.jit
def end_flaw(base, words, own, extra_before, escapes_before, length):
    """What is wrong with the end of a tile, given its last plane and the counts of the planes before it."""
    counts = tl.load(own + PLANE_COUNTS)
    extra_bits = extra_before + (counts & 0xFFFF)
    extra_at = tl.load(words + EXTRA_AT)
    flaw = tl.where(escapes_before + (counts >> 16) != tl.load(words + ESCAPES), BAD_ESCAPES, 0)
    flaw = tl.maximum(flaw, tl.where(extra_at + ((extra_bits + 7) >> 3) != length, BAD_LENGTH, 0))
    last = byte(base, extra_at + (extra_bits >> 3), length, (extra_bits & 7) > 0)
    return tl.maximum(flaw, tl.where((last >> (extra_bits & 7)) != 0, BAD_PADDING, 0))
