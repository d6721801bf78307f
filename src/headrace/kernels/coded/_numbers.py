# SPDX-License-Identifier: Apache-2.0
# Triton compiles these functions: only its own annotations are allowed, and constants are in capitals.
# ruff: noqa: ANN001, ANN202, N803
# mypy: disable-error-code="import, no-untyped-call, no-untyped-def, untyped-decorator"
"""The unary numbers of a plane of a coded tile, and how many extra bits and escapes precede each block.

One program per plane. It writes the positions of the ones of the unary section, then reads them as numbers, four at a
time, and stores prefix sums, so that each block of `coded_expand_kernel` can start on its own.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels._triton_shared import (
    BAD_SECTION,
    BAD_UNARY,
    BOTH_PHASES,
    FIRST_PHASE,
    SECOND_PHASE,
    TILE_ENTRIES,
    TILE_NUMBERS,
    ends_in_zero,
    load_int64,
    report,
    tile_header,
    unary_positions,
)
from headrace.kernels.coded._blocks import (
    BLOCK_WORDS,
    CLASS,
    COUNTS_BEFORE,
    EACH_BYTE,
    ESCAPE,
    FIRST,
    PAIRS,
    PLANE_COUNTS,
    PLANE_FIRST,
    PLANE_NUMBERS,
    PLANE_WORDS,
    PLANES_AT,
    ROWS_AT,
    SECTION_AT,
    SECTION_BYTES,
    at_least,
    code_of,
    four_numbers,
    numbers_of,
    one_bit_numbers,
)
from headrace.kernels.tables import SIZES, SLICES


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def coded_numbers_kernel(
    payload,
    tiles,
    n_tiles,
    chains,
    n_chains,
    numbers,
    entries,
    status,
    PHASES: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCKS: tl.constexpr,
    CHUNK: tl.constexpr,
    WORDS: tl.constexpr,
):
    tile = tl.load(chains + tl.program_id(0))
    plane = tl.load(chains + n_chains + tl.program_id(0))
    base, length, channels, n, h, w = tile_header(payload, tiles, n_tiles, tile)
    across = (w + 7) // 8
    blocks = (h + 7) // 8 * across
    words = entries + load_int64(tiles, n_tiles, TILE_ENTRIES, tile)
    own = words + PLANES_AT + plane * PLANE_WORDS
    table = words + PLANES_AT + PLANE_WORDS * channels + plane * blocks * BLOCK_WORDS
    positions = numbers + load_int64(tiles, n_tiles, TILE_NUMBERS, tile)

    first = tl.load(own + PLANE_FIRST)
    if PHASES != SECOND_PHASE:
        begin = tl.load(own + SECTION_AT)
        size = tl.load(own + SECTION_BYTES)
        expected = tl.load(own + PLANE_NUMBERS)
        flaw = tl.where(begin + size > length, BAD_SECTION, 0)
        size = tl.where(begin + size > length, 0, size)
        count = unary_positions(base, begin, size, expected, positions + first, CHUNK)
        if (count != expected) | ends_in_zero(base, begin, size):
            flaw = tl.maximum(flaw, BAD_UNARY)
        report(status, tiles, n_tiles, tile, flaw)
    if PHASES == BOTH_PHASES:
        tl.debug_barrier()
    if PHASES != FIRST_PHASE:
        total = 0
        for start in range(0, blocks, BLOCKS):
            block = start + tl.arange(0, BLOCKS)  # [BLOCKS]
            inside = block < blocks
            entry = table + block * BLOCK_WORDS
            kind = tl.load(entry + CLASS, mask=inside, other=0)
            at = tl.load(own + ROWS_AT + 2 * (block // across) + 1, mask=inside, other=0)
            at += tl.load(entry + FIRST, mask=inside, other=0)
            n_numbers = tl.where(inside, numbers_of(kind, n), 0)
            counts = count_bits(positions, at, first, kind, n_numbers, n, WIDE, WORDS)
            tl.store(entry + COUNTS_BEFORE, total + tl.cumsum(counts, 0) - counts, mask=inside)
            total += tl.sum(counts)
        tl.store(own + PLANE_COUNTS, total)


@triton.jit
def count_bits(positions, at, first_of_plane, kind, n_numbers, n, WIDE: tl.constexpr, WORDS: tl.constexpr):
    """Return the number of extra bits (low half) and of escapes (high half) of each block [BLOCKS].

    The numbers of a block start at index `at`. WORDS words of four numbers are read at a time. Each byte of a counter
    counts for one of the four.
    """
    code = code_of(kind, n)
    paired = code == PAIRS
    # A pair has one bit each for q >= 1, 2, 4 and 8; other numbers have one bit for low <= q < low + count.
    low, count = one_bit_numbers(code)
    first_bound = (tl.where(paired, 1, low) * EACH_BYTE).to(tl.uint32)[:, None]
    second_bound = (tl.where(paired, 2, low + count) * EACH_BYTE).to(tl.uint32)[:, None]
    words = positions.to(tl.pointer_type(tl.uint32), bitcast=True)
    # No choice depends on the block within the loop: LLVM would make a loop of each case, and threads would diverge.
    # Where there are no numbers, q is 0 and adds as much to `above_first` as to `above_second`, or nothing.
    above_first = tl.zeros_like(at).to(tl.uint32)
    above_second = tl.zeros_like(kind).to(tl.uint32)
    above_others = tl.zeros_like(code).to(tl.uint32)
    escapes = tl.zeros_like(low).to(tl.uint32)
    for start in range(0, 16, WORDS):
        word = start + tl.arange(0, WORDS)[None, :]  # [1, WORDS]
        there = 4 * word < n_numbers[:, None]  # [BLOCKS, WORDS]
        place = (at >> 2)[:, None] + word
        before = tl.load(words + place - 1, mask=there & (place > first_of_plane >> 2), other=0xFFFFFFFF)
        q = four_numbers(tl.load(words + place, mask=there, other=0x03020100), before)
        above_first += tl.sum(at_least(q, first_bound), 1)
        above_second += tl.sum(at_least(q, second_bound), 1)
        above_others += tl.sum(at_least(q, 4 * EACH_BYTE) + at_least(q, 8 * EACH_BYTE), 1)
        if WIDE:
            escapes += tl.sum(at_least(q, ESCAPE * EACH_BYTE), 1)
    extra = tl.where(paired, above_first + above_second + above_others, above_first - above_second)
    escapes = tl.where(paired | (n == 8), 0, escapes)
    return sum_of_bytes(extra) | sum_of_bytes(escapes) << 16


@triton.jit
def sum_of_bytes(word):
    """The sum of the four bytes of a word, at most 255."""
    return ((word * EACH_BYTE) >> 24).to(tl.int32)
