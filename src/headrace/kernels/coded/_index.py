# SPDX-License-Identifier: Apache-2.0
"""The classes of the blocks of coded tiles, and where each part of a tile starts: one program per tile."""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels import _triton_shared as ops
from headrace.kernels.coded import _numbers as coded
from headrace.kernels.tables import SIZES, SLICES


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def coded_index_kernel(
    payload, tiles, n_tiles, own_tiles, numbers, entries, status,
    PHASES: tl.constexpr, PLANES: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Decode the classes of one tile, of PLANES planes in parallel."""
    tile = tl.load(own_tiles + tl.program_id(0))
    base, length, channels, n, h, w = ops.tile_header(payload, tiles, n_tiles, tile)
    down = (h + 7) // 8
    across = (w + 7) // 8
    blocks = down * across
    words = entries + ops.load_int64(tiles, n_tiles, ops.TILE_ENTRIES, tile)
    planes = words + coded.PLANES_AT
    table = planes + coded.PLANE_WORDS * channels
    # The numbers of classes come after those of samples, which must start at a multiple of 32 bytes.
    positions = numbers + ops.load_int64(tiles, n_tiles, ops.TILE_NUMBERS, tile) + 64 * channels * blocks

    strips = (w + 31) // 32
    ids_at = 1 + (channels + 3) // 4
    sizes_at = ids_at + channels * ((strips + 1) // 2)
    begin = sizes_at + 2 + 2 * channels + tl.where(n == 16, 2, 0)
    size = ops.short(base, sizes_at, length, True)
    flaw = tl.where(begin + size > length, ops.BAD_SECTION, 0)
    size = tl.where(begin + size > length, 0, size)
    if PHASES != ops.SECOND_PHASE:
        flaw = tl.maximum(flaw, ops.color_flaw(base, channels, length))
        flaw = tl.maximum(flaw, strip_flaw(base, ids_at, channels, strips, length))
        count = ops.unary_positions(base, begin, size, channels * blocks, positions, CHUNK)
        if (count != channels * blocks) | ops.ends_in_zero(base, begin, size):
            flaw = tl.maximum(flaw, ops.BAD_UNARY)
    if PHASES == ops.BOTH_PHASES:
        tl.debug_barrier()
    if PHASES != ops.FIRST_PHASE:
        raw_at = begin + size
        first = 0
        bad = 0
        for plane in range(0, channels, PLANES):
            raw_bytes, asked, beyond = class_wave(
                positions, planes, table, plane, channels, down, across, n, raw_at, first, PLANES
            )
            raw_at += raw_bytes
            first += asked
            bad += beyond
        flaw = tl.maximum(flaw, tl.where(bad > 0, ops.BAD_CLASS, 0))

        plane = tl.arange(0, 64)
        own = planes + plane * coded.PLANE_WORDS
        sections = ops.short(base, sizes_at + 2 + 2 * plane, length, plane < channels)
        tl.store(own + coded.SECTION_AT, raw_at + tl.cumsum(sections, 0) - sections, mask=plane < channels)
        tl.store(own + coded.SECTION_BYTES, sections, mask=plane < channels)
        n_escapes = ops.short(base, begin - 2, length, n == 16)
        escapes_at = raw_at + tl.sum(sections)
        tl.store(words + coded.ESCAPES_AT, escapes_at)
        tl.store(words + coded.EXTRA_AT, escapes_at + 2 * n_escapes)
        tl.store(words + coded.ESCAPES, n_escapes)
        flaw = tl.maximum(flaw, tl.where(escapes_at + 2 * n_escapes > length, ops.BAD_SECTION, 0))
    ops.report(status, tiles, n_tiles, tile, flaw)


@triton.jit
def strip_flaw(base, at, channels, strips, length):
    """BAD_PREDICTOR if a predictor is not defined or unused bits are not 0 (spec §6.5)."""
    stored = (strips + 1) // 2
    plane = tl.arange(0, 64)[:, None]
    strip = tl.arange(0, 8)[None, :]
    there = (plane < channels) & (strip < 2 * stored)
    chosen = (ops.byte(base, at + plane * stored + (strip >> 1), length, there) >> 4 * (strip & 1)) & 15
    beyond = there & (chosen > tl.where(strip < strips, 4, 0))
    return tl.where(tl.max(beyond.to(tl.int32)) > 0, ops.BAD_PREDICTOR, 0)


@triton.jit
def class_wave(positions, planes, table, first_plane, channels, down, across, n, raw_at, first, PLANES: tl.constexpr):
    """Decode the classes of some planes: a lane handles a row of blocks, one block behind the lane above it.

    Each lane counts the raw bytes and the numbers of its row, which gives the offset of each block. Returns the raw
    bytes, the numbers, and how many classes are not defined; these count as class 0.
    """
    lane = tl.arange(0, 4)[:, None]  # [4, 1]
    plane = first_plane + tl.arange(0, PLANES)[None, :]  # [1, PLANES]
    live = (plane < channels) & (lane < down)
    above = tl.broadcast_to((lane + 3) % 4, (4, PLANES))
    last = tl.where(n == 8, 15, 31)
    west = tl.full((4, PLANES), ops.FIRST_CLASS, tl.int32)
    raw_bytes = tl.zeros((4, PLANES), tl.int32)
    asked = tl.zeros((4, PLANES), tl.int32)
    beyond = tl.zeros((4, PLANES), tl.int32)
    for step in range(across + 3):
        north = tl.gather(west, above, 0)
        x = step - lane
        inside = live & (x >= 0) & (x < across)
        index = (plane * down + lane) * across + x
        change = ops.unzigzag(ops.unary_number(positions, index, 0, inside), 255)
        left = tl.where((x <= 0) & (lane > 0), north, west)
        over = tl.where(lane == 0, west, north)
        found = (ops.average(left, over) + change) & 255
        west = tl.where(inside, found, west)
        beyond += tl.where(inside & (found > last), 1, 0)
        kind = tl.where(found > last, 0, found)
        own = table + index * coded.BLOCK_WORDS
        tl.store(own + coded.CLASS, kind, mask=inside)
        tl.store(own + coded.RAW_AT, raw_bytes, mask=inside)
        tl.store(own + coded.FIRST, asked, mask=inside)
        raw_bytes += tl.where(inside, 8 * coded.raw_bits_of(kind, n), 0)
        asked += tl.where(inside, coded.numbers_of(kind, n), 0)

    of_plane = tl.sum(raw_bytes, 0)[None, :]
    numbers_of_plane = tl.sum(asked, 0)[None, :]
    first += tl.cumsum(numbers_of_plane, 1) - numbers_of_plane
    own = planes + plane * coded.PLANE_WORDS
    tl.store(own + coded.PLANE_NUMBERS, numbers_of_plane, mask=plane < channels)
    tl.store(own + coded.PLANE_FIRST, first, mask=plane < channels)
    row_raw = raw_at + tl.cumsum(of_plane, 1) - of_plane + tl.cumsum(raw_bytes, 0) - raw_bytes
    tl.store(own + coded.ROWS_AT + 2 * lane, row_raw, mask=live)
    tl.store(own + coded.ROWS_AT + 2 * lane + 1, first + tl.cumsum(asked, 0) - asked, mask=live)
    return tl.sum(raw_bytes), tl.sum(asked), tl.sum(beyond)
