# SPDX-License-Identifier: Apache-2.0
# Triton compiles these functions: only its own annotations are allowed, and constants are in capitals.
# ruff: noqa: ANN001, ANN202, N803, PLR0915
# mypy: disable-error-code="import, no-untyped-call, no-untyped-def, untyped-decorator"
"""Residuals of coded tiles: each sample fetches its number, its raw bits, and its extra bits or its escape."""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels._triton_shared import (
    BAD_ESCAPES,
    BAD_LENGTH,
    BAD_PADDING,
    ROWS,
    TILE_AT,
    TILE_BITS,
    TILE_CHANNELS,
    TILE_ENTRIES,
    TILE_HEIGHT,
    TILE_LENGTH,
    TILE_NUMBERS,
    TILE_VALUES,
    TILE_WIDTH,
    bits,
    byte,
    load_int32,
    load_int64,
    report,
    short,
    unary_number,
    unzigzag,
)
from headrace.kernels.coded._classes import code_of, escapes_of, extra_bits_of, high_of, numbers_of, raw_bits_of
from headrace.kernels.coded._words import (
    ASKED,
    BLOCK_WORDS,
    CLASS,
    ESCAPES,
    ESCAPES_AT,
    EXTRA_AT,
    FIRST,
    PLANE_FIRST,
    PLANE_WORDS,
    PLANES_AT,
    RAW_AT,
    ROWS_AT,
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
    BLOCKS: tl.constexpr,
):
    tile = tl.load(chains + tl.program_id(0))
    plane = tl.load(chains + n_chains + tl.program_id(0))
    h = load_int32(tiles, n_tiles, TILE_HEIGHT, tile)
    w = load_int32(tiles, n_tiles, TILE_WIDTH, tile)
    across = (w + 7) // 8
    blocks = (h + 7) // 8 * across
    at = tl.program_id(1) * BLOCKS
    if at >= blocks:
        return
    base = payload + load_int64(tiles, n_tiles, TILE_AT, tile)
    length = load_int32(tiles, n_tiles, TILE_LENGTH, tile)
    channels = load_int32(tiles, n_tiles, TILE_CHANNELS, tile)
    n = load_int32(tiles, n_tiles, TILE_BITS, tile)
    words = entries + load_int64(tiles, n_tiles, TILE_ENTRIES, tile)
    every_block = words + PLANES_AT + PLANE_WORDS * channels
    table = every_block + plane * blocks * BLOCK_WORDS
    positions = numbers + load_int64(tiles, n_tiles, TILE_NUMBERS, tile) + channels * blocks
    own = words + PLANES_AT + plane * PLANE_WORDS
    first_of_plane = tl.load(own + PLANE_FIRST)
    slot = values + load_int64(tiles, n_tiles, TILE_VALUES, tile) + plane.to(tl.int64) * (w + 2 * (ROWS - 1)) * ROWS

    # How many extra bits and escapes all earlier blocks of the tile ask for.
    extra_before = 0
    escapes_before = 0
    for first in range(0, plane * blocks + at, 256):
        earlier = first + tl.arange(0, 256)
        asked = tl.load(every_block + earlier * BLOCK_WORDS + ASKED, mask=earlier < plane * blocks + at, other=0)
        extra_before += tl.sum(asked & 0xFFFF)
        escapes_before += tl.sum(asked >> 16)
    block = at + tl.arange(0, BLOCKS)  # [BLOCKS]
    inside = block < blocks
    asked = tl.load(table + block * BLOCK_WORDS + ASKED, mask=inside, other=0)
    extra_of_block = asked & 0xFFFF
    escapes_of_block = asked >> 16
    extra_start = extra_before + tl.cumsum(extra_of_block, 0) - extra_of_block
    escape_start = escapes_before + tl.cumsum(escapes_of_block, 0) - escapes_of_block

    kind = tl.load(table + block * BLOCK_WORDS + CLASS, mask=inside, other=0)[:, None]  # [BLOCKS, 1]
    row = own + ROWS_AT + 2 * (block // across)
    raw_start = tl.load(row, mask=inside, other=0) + tl.load(table + block * BLOCK_WORDS + RAW_AT, mask=inside, other=0)
    first = tl.load(row + 1, mask=inside, other=0) + tl.load(table + block * BLOCK_WORDS + FIRST, mask=inside, other=0)
    raw_start = raw_start[:, None]
    first = first[:, None]
    code = code_of(kind, n)
    s = raw_bits_of(kind, n)
    sample = tl.arange(0, 64)[None, :]
    paired = code == 1
    second = paired & (sample & 1 == 1)  # shares the number of the sample before it
    there = inside[:, None] & (numbers_of(kind, n) > 0)  # [BLOCKS, 64] from here on
    q = unary_number(positions, first + tl.where(paired, sample >> 1, sample), first_of_plane, there & (sample >= 0))
    extra_bits = extra_bits_of(q, code)
    counted = tl.where(there & (second == 0), extra_bits, 0)
    extra_at = extra_start[:, None] + tl.cumsum(counted, 1) - tl.where(second, extra_bits, counted)
    escaped = tl.where(there, escapes_of(q, code, n), 0)

    low_bits = tl.minimum(s, 8)
    whole = inside[:, None] & (sample >= 0)
    raw = bits(base, raw_start, sample * low_bits, low_bits, length, whole)
    if WIDE:
        raw |= bits(base, raw_start + 64, sample * (s - low_bits), s - low_bits, length, whole & (s > 8)) << 8
    extra = bits(base, tl.load(words + EXTRA_AT), extra_at, extra_bits, length, there & (escaped == 0))
    high = high_of(q, extra, code, second)
    z = tl.where(there, high << s, 0) + raw
    if WIDE:
        own_escape = escape_start[:, None] + tl.cumsum(escaped, 1) - escaped
        in_escapes = own_escape < tl.load(words + ESCAPES)
        stated = short(base, tl.load(words + ESCAPES_AT) + 2 * own_escape, length, (escaped == 1) & in_escapes)
        z = tl.where(escaped == 1, stated, z)
    top = (1 << n) - 1
    residual = unzigzag(z & top, top)

    y = (block // across * 8)[:, None] + (sample >> 3)
    x = (block % across * 8)[:, None] + (sample & 7)
    stored = residual.to(tl.int16) if WIDE else residual.to(tl.uint8)
    tl.store(slot + (x + 2 * y) * ROWS + y, stored, mask=whole & (y < h) & (x < w))

    if (plane == channels - 1) & (at + BLOCKS >= blocks):
        flaw = end_flaw(
            base, words, extra_before + tl.sum(extra_of_block), escapes_before + tl.sum(escapes_of_block), length
        )
        report(status, tiles, n_tiles, tile, flaw)


@triton.jit
def end_flaw(base, words, extra_bits, escapes, length):
    """What is wrong with the end of a tile whose numbers ask for so many extra bits and escapes."""
    extra_at = tl.load(words + EXTRA_AT)
    flaw = tl.where(escapes != tl.load(words + ESCAPES), BAD_ESCAPES, 0)
    flaw = tl.maximum(flaw, tl.where(extra_at + ((extra_bits + 7) >> 3) != length, BAD_LENGTH, 0))
    last = byte(base, extra_at + (extra_bits >> 3), length, (extra_bits & 7) > 0)
    return tl.maximum(flaw, tl.where((last >> (extra_bits & 7)) != 0, BAD_PADDING, 0))
