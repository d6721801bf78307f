# SPDX-License-Identifier: Apache-2.0
# Triton compiles these functions: only its own annotations are allowed, and constants are in capitals.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="import, no-untyped-call, no-untyped-def, untyped-decorator"
"""What the kernels of coded tiles share: their words in the `entries` scratch, and the classes of blocks.

The tables of classes (spec/image.md §6.5) are written as arithmetic. Numbers are handled four at a time, one per byte
of a 32-bit word: a block has 0, 32 or 64 of them, so the numbers of a block always start at a multiple of 32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels import _batch

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
