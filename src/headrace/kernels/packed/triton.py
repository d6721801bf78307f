# SPDX-License-Identifier: Apache-2.0
"""Widths and offsets of the groups of packed tiles: one program per tile, one plane after the other."""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels import _triton_shared as ops
from headrace.kernels import tables
from headrace.kernels._batch import GROUP, DeviceBatch
from headrace.kernels.backend import sized
from headrace.kernels.tables import SIZES, SLICES, TileKind

CHUNK, WARPS = sized(64, 256), 2
ACROSS = tables.TILE_WIDTH // GROUP  # of the widest tile, so that narrower ones are not compiled again


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def packed_index_kernel(
    payload, tiles, n_tiles, own_tiles, numbers, entries, status,
    PHASES: tl.constexpr, ACROSS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Handle one tile, which has at most ACROSS groups per row."""
    tile = tl.load(own_tiles + tl.program_id(0))
    base, length, channels, n, h, w = ops.tile_header(payload, tiles, n_tiles, tile)
    down = (h + 3) // 4
    across = (w + 3) // 4
    positions = numbers + ops.load_int64(tiles, n_tiles, ops.TILE_NUMBERS, tile)
    table = entries + ops.load_int64(tiles, n_tiles, ops.TILE_ENTRIES, tile)
    groups = down * across

    ids_at = 1 + (channels + 3) // 4
    size_at = ids_at + (channels + 1) // 2
    begin = size_at + 2
    size = ops.short(base, size_at, length, True)
    flaw = tl.where(begin + size > length, ops.BAD_SECTION, 0)
    size = tl.where(begin + size > length, 0, size)
    if PHASES != ops.SECOND_PHASE:
        flaw = tl.maximum(flaw, ops.color_flaw(base, channels, length))
        flaw = tl.maximum(flaw, predictor_flaw(base, ids_at, channels, length))
        count = ops.unary_positions(base, begin, size, channels * groups, positions, CHUNK)
        if (count != channels * groups) | ops.ends_in_zero(base, begin, size):
            flaw = tl.maximum(flaw, ops.BAD_UNARY)
    if PHASES == ops.BOTH_PHASES:
        tl.debug_barrier()
    if PHASES != ops.FIRST_PHASE:
        flaw = tl.maximum(flaw, store_groups(begin + size, positions, table, channels, n, down, across, length, ACROSS))
    ops.report(status, tiles, n_tiles, tile, flaw)


@triton.jit
def store_groups(begin, positions, table, channels, n, down, across, length, ACROSS: tl.constexpr):
    """Store the width and the offset of each group; return what is wrong with them, or 0."""
    row = tl.arange(0, 8)[:, None]
    column = tl.arange(0, ACROSS)[None, :]
    inside = (row < down) & (column < across)
    groups = down * across
    end = begin
    flaw = 0
    for plane in range(channels):
        index = plane * groups + row * across + column  # [8, ACROSS]
        steps = ops.unzigzag(ops.unary_number(positions, index, 0, inside), 255)
        first_row = tl.cumsum(tl.where(row == 0, steps, 0), 1) + ops.FIRST_WIDTH
        widths = tl.cumsum(tl.where(row == 0, first_row, steps), 0) & 255
        flaw = tl.maximum(flaw, tl.where(tl.max(tl.where(inside & (widths > n), 1, 0)) > 0, ops.BAD_WIDTH, 0))
        widths = tl.where(inside, tl.minimum(widths, n), 0)
        sizes = 2 * widths
        of_row = tl.sum(sizes, 1)  # [8]
        start = end + (tl.cumsum(of_row, 0) - of_row)[:, None] + tl.cumsum(sizes, 1) - sizes
        tl.store(table + index, start << 5 | widths, mask=inside)
        end += tl.sum(of_row, 0)
    return tl.maximum(flaw, tl.where(end != length, ops.BAD_LENGTH, 0))


@triton.jit
def predictor_flaw(base, at, channels, length):
    """BAD_PREDICTOR if a predictor is not defined or unused bits are not 0 (spec §6.4)."""
    plane = tl.arange(0, 64)
    stored = plane < (channels + 1) // 2 * 2
    chosen = (ops.byte(base, at + (plane >> 1), length, stored) >> 4 * (plane & 1)) & 15
    beyond = stored & (chosen > tl.where(plane < channels, 2, 0))
    return tl.where(tl.max(beyond.to(tl.int32), 0) > 0, ops.BAD_PREDICTOR, 0)


def index(batch: DeviceBatch) -> None:
    """Fill the table of groups of all packed tiles."""
    own = batch.tiles_of(TileKind.PACKED)
    for phases in ops.phases_of(batch.payload.device):
        packed_index_kernel[(len(own),)](
            batch.payload, batch.tiles, batch.tiles.shape[1], own, batch.numbers, batch.entries, batch.status,
            PHASES=phases, ACROSS=ACROSS, CHUNK=CHUNK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
