# SPDX-License-Identifier: Apache-2.0
"""The unary numbers of coded tiles, and what the kernels of coded tiles share: their scratch and the classes of blocks.

The tables of classes (spec/image.md §6.5) are written as arithmetic. Numbers are handled four at a time, one per byte
of a 32-bit word: a block has 0, 32 or 64 of them, so the numbers of a block always start at a multiple of 32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels import _batch
from headrace.kernels import _triton_shared as ops
from headrace.kernels.tables import SIZES, SLICES

# Per tile: where escapes and extra bits start, the number of escapes, and a spare word.
ESCAPES_AT = tl.constexpr(0)
EXTRA_AT = tl.constexpr(1)
ESCAPES = tl.constexpr(2)
PLANES_AT = tl.constexpr(_batch.CODED_TILE_WORDS)
# Per plane: where its unary section starts, its size, its count of numbers and the index of the first number; then for
# each of up to four rows of blocks where its raw bits start and the index of its first number. `coded_numbers_kernel`
# replaces the size, once it was used, by the counts of extra bits (low half) and escapes (high half) of the plane.
PLANE_WORDS = tl.constexpr(_batch.CODED_PLANE_WORDS)
SECTION_AT = tl.constexpr(0)
SECTION_BYTES = tl.constexpr(1)
PLANE_COUNTS = tl.constexpr(1)
PLANE_NUMBERS = tl.constexpr(2)
PLANE_FIRST = tl.constexpr(3)
ROWS_AT = tl.constexpr(4)
# Per block: its class; where its raw bits start and the index of its first number, both relative to its row of blocks;
# and how many extra bits (low half) and escapes (high half) the earlier blocks of the plane have.
BLOCK_WORDS = tl.constexpr(_batch.CODED_BLOCK_WORDS)
CLASS = tl.constexpr(0)
RAW_AT = tl.constexpr(1)
FIRST = tl.constexpr(2)
COUNTS_BEFORE = tl.constexpr(3)

PAIRS = tl.constexpr(1)
PLAIN = tl.constexpr(2)
TAIL = tl.constexpr(3)
HALF = tl.constexpr(4)
DOUBLE = tl.constexpr(5)
AS_IS = tl.constexpr(6)
ESCAPE = tl.constexpr(12)  # if n = 16, this number and higher ones are escapes
EACH_BYTE = tl.constexpr(0x01010101)
LOW_BITS = tl.constexpr(0x7F7F7F7F)
HIGH_BITS = tl.constexpr(0x80808080)


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def coded_numbers_kernel(
    payload, tiles, n_tiles, chains, n_chains, numbers, entries, status,
    PHASES: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, CHUNK: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Write the positions of the ones of a plane's unary section, and count the bits before each block.

    The counts are prefix sums, so that each block of `coded_expand_kernel` can start on its own.
    """
    tile = tl.load(chains + tl.program_id(0))
    plane = tl.load(chains + n_chains + tl.program_id(0))
    base, length, channels, n, h, w = ops.tile_header(payload, tiles, n_tiles, tile)
    across = (w + 7) // 8
    blocks = (h + 7) // 8 * across
    words = entries + ops.load_int64(tiles, n_tiles, ops.TILE_ENTRIES, tile)
    own = words + PLANES_AT + plane * PLANE_WORDS
    table = words + PLANES_AT + PLANE_WORDS * channels + plane * blocks * BLOCK_WORDS
    positions = numbers + ops.load_int64(tiles, n_tiles, ops.TILE_NUMBERS, tile)

    first = tl.load(own + PLANE_FIRST)
    if PHASES != ops.SECOND_PHASE:
        begin = tl.load(own + SECTION_AT)
        size = tl.load(own + SECTION_BYTES)
        expected = tl.load(own + PLANE_NUMBERS)
        flaw = tl.where(begin + size > length, ops.BAD_SECTION, 0)
        size = tl.where(begin + size > length, 0, size)
        count = ops.unary_positions(base, begin, size, expected, positions + first, CHUNK)
        if (count != expected) | ops.ends_in_zero(base, begin, size):
            flaw = tl.maximum(flaw, ops.BAD_UNARY)
        ops.report(status, tiles, n_tiles, tile, flaw)
    if PHASES == ops.BOTH_PHASES:
        tl.debug_barrier()
    if PHASES != ops.FIRST_PHASE:
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


@triton.jit
def code_of(kind, n):
    """The code of a class: 0 (all values are 0) to 6 (raw values). Classes 0 to 5 are their own codes."""
    later = tl.where(kind & 1 == 0, PLAIN, HALF)
    later = tl.where((n == 8) & (kind >= 12), PLAIN, later)
    later = tl.where(kind == tl.where(n == 8, 15, 31), AS_IS, later)
    return tl.where(kind < 6, kind, later)


@triton.jit
def raw_bits_of(kind, n):
    """The raw bits of a sample: s in the spec."""
    later = (kind - 4) >> 1
    later = tl.where((n == 8) & (kind >= 12), kind - 8, later)
    later = tl.where(kind == tl.where(n == 8, 15, 31), n, later)
    return tl.where(kind < 6, 0, later)


@triton.jit
def numbers_of(kind, n):
    """How many unary numbers a block has."""
    code = code_of(kind, n)
    return tl.where((code == 0) | (code == AS_IS), 0, tl.where(code == PAIRS, 32, 64))


@triton.jit
def one_bit_numbers(code):
    """Return (first, count): in a block without pairs, the numbers first <= q < first + count have one extra bit.

    The value above the raw bits is then q + min(max(q - first, 0), count) + extra bit.
    """
    first = tl.where(code == TAIL, 1, 0)
    return first, tl.where(code == HALF, 1, tl.where((code == DOUBLE) | (code == TAIL), 2, 0))


@triton.jit
def pair_bits(q):
    """The extra bits of a pair: the bit length of q, at most 4."""
    table: tl.constexpr = 1 << 3 | 2 << 6 | 2 << 9 | 3 << 12 | 3 << 15 | 3 << 18 | 3 << 21 | 4 << 24
    return (table >> 3 * tl.minimum(q, 8)) & 7


@triton.jit
def four_numbers(positions, before):
    """Four unary numbers, one per byte: the distances between four positions and those before them, minus 1.

    `before` is the word before `positions`; its last byte precedes their first.
    """
    inverted = ~(positions << 8 | before >> 24)
    return ((positions & LOW_BITS) + (inverted & LOW_BITS)) ^ ((positions ^ inverted) & HIGH_BITS)


@triton.jit
def at_least(numbers, bound):
    """For each byte of a word of numbers 1 if it is >= the bound, at most 127, in that byte of `bound`, else 0."""
    return ((((numbers | HIGH_BITS) - bound) | numbers) & HIGH_BITS) >> 7


@triton.jit
def tile_words(base):
    """The bytes of a tile as 32-bit words: tiles start at multiples of 16 bytes, and the last word may be padded."""
    return base.to(tl.pointer_type(tl.uint32), bitcast=True)
