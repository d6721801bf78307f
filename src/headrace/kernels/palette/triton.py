# SPDX-License-Identifier: Apache-2.0
"""The exceptions of palette tiles, in the order of the wave: one program per tile, sixteen blocks at a time."""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels import _triton_shared as ops
from headrace.kernels._batch import DeviceBatch
from headrace.kernels.backend import sized
from headrace.kernels.tables import SIZES, SLICES, TileKind

BLOCKS, WARPS = sized(16, 128), 4


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def palette_expand_kernel(
    payload, tiles, n_tiles, own_tiles, values, status, WIDE: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Handle one tile, BLOCKS blocks at a time."""
    tile = tl.load(own_tiles + tl.program_id(0))
    base, length, channels, n, h, w = ops.tile_header(payload, tiles, n_tiles, tile)
    value_bytes = n // 8
    slot = values + ops.load_int64(tiles, n_tiles, ops.TILE_VALUES, tile)

    count = ops.byte(base, 1, length, True)
    flaw = palette_flaw(base, count, channels, value_bytes, length)
    each = tl.arange(0, 8)
    bits_each = tl.sum(tl.where(((count - 1) >> each) > 0, 1, 0))  # the bit length of count - 1

    # Three levels of flags. The offset of a level follows from the number of ones in the levels before it.
    across = (w + 7) // 8
    blocks = (h + 7) // 8 * across
    flags_at = 2 + count * channels * value_bytes
    flag_bytes = (blocks + 7) // 8
    rows_at = flags_at + flag_bytes
    place = tl.arange(0, 16)
    samples_at = rows_at + tl.sum(ops.ones_of(ops.byte(base, flags_at + place, length, place < flag_bytes)))
    place = tl.arange(0, 128)
    row_flags = ops.byte(base, rows_at + place, length, place < samples_at - rows_at)
    numbers_at = samples_at + tl.sum(ops.ones_of(row_flags))
    unused = ops.byte(base, flags_at + flag_bytes - 1, length, flag_bytes > 0) >> ((blocks - 1) & 7) + 1
    if unused != 0:
        flaw = tl.maximum(flaw, ops.BAD_PADDING)

    rows_before = 0
    samples_before = 0
    numbers_before = 0
    for first in range(0, blocks, BLOCKS):
        block = first + tl.arange(0, BLOCKS)  # [BLOCKS]
        inside = block < blocks
        flagged = (ops.byte(base, flags_at + (block >> 3), length, inside) >> (block & 7)) & 1
        rank = rows_before + tl.cumsum(flagged, 0) - flagged
        row_bits = ops.byte(base, rows_at + rank, length, flagged == 1)
        bad = (flagged == 1) & (row_bits == 0)
        flaw = tl.maximum(flaw, tl.where(tl.max(bad.to(tl.int32)) > 0, ops.BAD_EXCEPTION, 0))
        rows_before += tl.sum(flagged)

        row_of_block = tl.arange(0, 8)[None, :]
        row_flagged = (row_bits[:, None] >> row_of_block) & 1  # [BLOCKS, 8]
        rows_flagged = tl.reshape(row_flagged, (BLOCKS * 8,))
        rank = samples_before + tl.cumsum(rows_flagged, 0) - rows_flagged
        sample_bits = ops.byte(base, samples_at + rank, length, rows_flagged == 1)  # [BLOCKS * 8]
        bad = (rows_flagged == 1) & (sample_bits == 0)
        flaw = tl.maximum(flaw, tl.where(tl.max(bad.to(tl.int32)) > 0, ops.BAD_EXCEPTION, 0))
        samples_before += tl.sum(rows_flagged)

        ones = ops.ones_of(sample_bits)
        rank = numbers_before + tl.cumsum(ones, 0) - ones
        numbers_before += tl.sum(ones)
        column = tl.arange(0, 8)[None, :]
        excepted = (sample_bits[:, None] >> column) & 1 == 1  # [BLOCKS * 8, 8]
        rank = rank[:, None] + ops.ones_of(sample_bits[:, None] & ((1 << column) - 1))
        number = ops.bits(base, numbers_at, rank * bits_each, bits_each, length, excepted)
        row = first * 8 + tl.arange(0, BLOCKS * 8)
        own_block = row >> 3
        y = ((own_block // across) * 8 + (row & 7))[:, None]
        x = ((own_block % across) * 8)[:, None] + column
        in_tile = (own_block < blocks)[:, None] & (y < h) & (x < w)
        bad = excepted & ((in_tile == 0) | (number >= count))
        flaw = tl.maximum(flaw, tl.where(tl.max(bad.to(tl.int32)) > 0, ops.BAD_EXCEPTION, 0))
        symbol = tl.where(excepted, number, 255)
        symbol = symbol.to(tl.int16) if WIDE else symbol.to(tl.uint8)
        tl.store(slot + (x + y) * ops.ROWS + y, symbol, mask=in_tile)

    last_bit = numbers_before * bits_each
    if numbers_at + ((last_bit + 7) >> 3) != length:
        flaw = tl.maximum(flaw, ops.BAD_LENGTH)
    if ops.byte(base, numbers_at + (last_bit >> 3), length, (last_bit & 7) > 0) >> (last_bit & 7) != 0:
        flaw = tl.maximum(flaw, ops.BAD_PADDING)
    ops.report(status, tiles, n_tiles, tile, flaw)


@triton.jit
def palette_flaw(base, count, channels, value_bytes, length):
    """BAD_PALETTE unless there are two or more colors in strictly ascending order (spec §6.3)."""
    color = tl.arange(0, 256)
    compared = color + 1 < count
    at = 2 + color * channels * value_bytes
    above = tl.zeros((256,), tl.int32)
    decided = tl.zeros((256,), tl.int32)
    for channel in range(channels):
        here = at + channel * value_bytes
        there = here + channels * value_bytes
        low = ops.value(base, here, value_bytes, length, compared)
        high = ops.value(base, there, value_bytes, length, compared)
        above = tl.where((decided == 0) & (high > low), 1, above)
        decided = tl.where(high != low, 1, decided)
    disordered = tl.max(tl.where(compared & (above == 0), 1, 0)) > 0
    return tl.where(disordered | (count < 2), ops.BAD_PALETTE, 0)


def expand(batch: DeviceBatch) -> None:
    """Write the exceptions of all palette tiles to their slots, and 255 for all other pixels."""
    own = batch.tiles_of(TileKind.PALETTE)
    palette_expand_kernel[(len(own),)](
        batch.payload, batch.tiles, batch.tiles.shape[1], own, batch.values, batch.status,
        WIDE=batch.wide, BLOCKS=BLOCKS, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
