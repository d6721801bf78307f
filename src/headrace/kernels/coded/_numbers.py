# SPDX-License-Identifier: Apache-2.0
# Triton compiles these functions: only its own annotations are allowed, and constants are in capitals.
# ruff: noqa: ANN001, ANN202, N803
# mypy: disable-error-code="import, no-untyped-call, no-untyped-def, untyped-decorator"
"""The unary numbers of a plane of a coded tile, and what they ask for: one program a plane."""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels._triton_shared import (
    BAD_SECTION,
    BAD_UNARY,
    BOTH_PHASES,
    FIRST_PHASE,
    SECOND_PHASE,
    TILE_AT,
    TILE_BITS,
    TILE_CHANNELS,
    TILE_ENTRIES,
    TILE_HEIGHT,
    TILE_LENGTH,
    TILE_NUMBERS,
    TILE_WIDTH,
    ends_in_zero,
    load_int32,
    load_int64,
    report,
    unary_number,
    unary_positions,
)
from headrace.kernels.coded._classes import code_of, escapes_of, extra_bits_of, numbers_of
from headrace.kernels.coded._words import (
    ASKED,
    BLOCK_WORDS,
    CLASS,
    FIRST,
    PLANE_FIRST,
    PLANE_NUMBERS,
    PLANE_WORDS,
    PLANES_AT,
    ROWS_AT,
    SECTION_AT,
    SECTION_BYTES,
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
    BLOCKS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    tile = tl.load(chains + tl.program_id(0))
    plane = tl.load(chains + n_chains + tl.program_id(0))
    base = payload + load_int64(tiles, n_tiles, TILE_AT, tile)
    length = load_int32(tiles, n_tiles, TILE_LENGTH, tile)
    channels = load_int32(tiles, n_tiles, TILE_CHANNELS, tile)
    n = load_int32(tiles, n_tiles, TILE_BITS, tile)
    across = (load_int32(tiles, n_tiles, TILE_WIDTH, tile) + 7) // 8
    blocks = (load_int32(tiles, n_tiles, TILE_HEIGHT, tile) + 7) // 8 * across
    words = entries + load_int64(tiles, n_tiles, TILE_ENTRIES, tile)
    own = words + PLANES_AT + plane * PLANE_WORDS
    table = words + PLANES_AT + PLANE_WORDS * channels + plane * blocks * BLOCK_WORDS
    positions = numbers + load_int64(tiles, n_tiles, TILE_NUMBERS, tile) + channels * blocks

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
        sample = tl.arange(0, 64)[None, :]
        for at in range(0, blocks, BLOCKS):
            block = at + tl.arange(0, BLOCKS)[:, None]  # [BLOCKS, 1]
            inside = block < blocks
            kind = tl.load(table + block * BLOCK_WORDS + CLASS, mask=inside, other=0)
            row_first = tl.load(own + ROWS_AT + 2 * (block // across) + 1, mask=inside, other=0)
            index = row_first + tl.load(table + block * BLOCK_WORDS + FIRST, mask=inside, other=0) + sample
            there = inside & (sample < numbers_of(kind, n))
            q = unary_number(positions, index, first, there)
            code = code_of(kind, n)
            extra = tl.sum(tl.where(there, extra_bits_of(q, code), 0), 1)
            escaped = tl.sum(tl.where(there, escapes_of(q, code, n), 0), 1)
            of_block = at + tl.arange(0, BLOCKS)
            tl.store(table + of_block * BLOCK_WORDS + ASKED, extra | escaped << 16, mask=of_block < blocks)
