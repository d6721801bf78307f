# SPDX-License-Identifier: Apache-2.0
"""The last kernel: planes to output pixels, with color, ranks, region, flip, strides, dtype and normalization.

A program handles some steps of the wave of one tile: all rows, and in each row the columns of these steps. So it reads
contiguous values (of one step) and writes contiguous values (of one row).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from headrace.kernels import _triton_shared as ops
from headrace.kernels._batch import DeviceBatch
from headrace.kernels.backend import sized
from headrace.kernels.tables import LANES, SIZES, SLICES, TileKind

UINT8 = tl.constexpr(0)
UINT16 = tl.constexpr(1)
INT16 = tl.constexpr(2)
FLOAT = tl.constexpr(3)
FORMS = {torch.uint8: 0, torch.uint16: 1, torch.int16: 2, torch.float16: 3, torch.float32: 3}
STEPS, TURNS, WARPS = sized(32, 512), 3, 8


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def finish_kernel(
    payload, tiles, n_tiles, images, n_images, ranks, factors, values, out, out_channels,
    FORM: tl.constexpr, WIDE: tl.constexpr, RANKED: tl.constexpr, STEPS: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Write STEPS * TURNS steps of one tile in the sample type FORM. RANKED: some image of the batch has ranks."""
    tile = tl.program_id(0).to(tl.int64)
    image = ops.load_int64(tiles, n_tiles, ops.TILE_IMAGE, tile)
    kind = ops.load_int32(tiles, n_tiles, ops.TILE_KIND, tile)
    base, length, channels, n, h, w = ops.tile_header(payload, tiles, n_tiles, tile)
    skew = tl.where(kind == ops.CODED, 2, tl.where((kind == ops.PACKED) | (kind == ops.PALETTE), 1, 0))
    steps = w + skew * (ops.ROWS - 1)
    top = ops.load_int32(tiles, n_tiles, ops.TILE_TOP, tile)
    left = ops.load_int32(tiles, n_tiles, ops.TILE_LEFT, tile)
    height = ops.load_int32(images, n_images, ops.IMAGE_HEIGHT, image)
    width = ops.load_int32(images, n_images, ops.IMAGE_WIDTH, image)
    # Offsets of tiles need 64 bits; within a tile 32 bits are enough.
    stride_c = ops.load_int64(images, n_images, ops.IMAGE_STRIDE_C, image)
    stride_y = ops.load_int64(images, n_images, ops.IMAGE_STRIDE_Y, image)
    stride_x = ops.load_int64(images, n_images, ops.IMAGE_STRIDE_X, image)
    flip = ops.load_int32(images, n_images, ops.IMAGE_FLIP, image) > 0
    corner = out + ops.load_int64(images, n_images, ops.IMAGE_OUT, image)
    corner += top * stride_y + tl.where(flip, width - 1 - left, left) * stride_x
    column_stride = tl.where(flip, -stride_x, stride_x).to(tl.int32)
    slot = values + tl.multiple_of(ops.load_int64(tiles, n_tiles, ops.TILE_VALUES, tile), 16)
    rank_table = ranks + ops.load_int64(images, n_images, ops.IMAGE_RANKS, image)
    rank_count = ops.load_int32(images, n_images, ops.IMAGE_RANK_COUNT, image)
    stored = ops.load_int32(images, n_images, ops.IMAGE_DTYPE, image)
    kept = tl.where(out_channels == 0, channels, out_channels)
    spread = (channels <= 2) & (kept == 3)  # one channel becomes three: its plane is used three times
    first_row = tl.maximum(-top, 0)  # that the region contains
    rows = tl.minimum(h, height - top)
    first_column = tl.maximum(-left, 0)
    columns = tl.minimum(w, width - left)

    first = tl.program_id(1) * (STEPS * TURNS)
    y = tl.arange(0, ops.ROWS)[:, None]  # [ROWS, 1]
    for begin in range(first, tl.minimum(first + STEPS * TURNS, steps), STEPS):
        step = begin + tl.arange(0, STEPS)[None, :]  # [1, STEPS]
        x = step - skew * y
        wanted = (y >= first_row) & (y < rows) & (x >= first_column) & (x < columns)  # [ROWS, STEPS]
        # Read all rows of a step, not only the needed ones: the loads of several lanes then become one.
        made = tl.broadcast_to(step < steps, (ops.ROWS, STEPS))
        from_slot = slot + step * ops.ROWS + y
        at = corner + (y * stride_y.to(tl.int32) + x * column_stride)
        if kind >= ops.PACKED:
            near = tl.zeros((ops.ROWS, STEPS), tl.int32)
            far = tl.zeros((ops.ROWS, STEPS), tl.int32)
            for turn in range(channels + tl.where(spread, 2, 0)):
                plane = tl.minimum(turn, channels - 1)
                channel = tl.where((plane < 2) & (channels > 1), 1 - plane, plane)
                value = plane_value(from_slot, made, WIDE)
                value = undo_color(value, near, far, ops.color_code(base, channel, length, True), n)
                from_slot += tl.where(turn < channels - 1, steps * ops.ROWS, 0)
                # Channels are coded in the order 1, 0, 2, 3 …; for channel 2, channel 1 is near and channel 0 is far.
                if plane == 1:
                    far = value
                else:
                    far = near
                    near = value
                level = level_of(value, rank_table, rank_count, stored, wanted, RANKED)
                out_channel = tl.where(spread, turn - channels + 1, channel)
                if (out_channel >= 0) & (out_channel < kept):
                    store_value(at + out_channel * stride_c, level, stored, factors + out_channel, wanted, FORM)
        else:
            place = tl.where(kind == ops.RAW, y * w + x, 0)
            if kind == ops.PALETTE:
                place = plane_value(from_slot, made, WIDE)
            for out_channel in range(tl.where(spread, 3, tl.minimum(channels, kept))):
                channel = tl.where(spread, 0, out_channel)
                listed = tl.where(kind == ops.PALETTE, 2, 1) + (place * channels + channel) * (n // 8)
                value = coded_value(base, listed, length, wanted, WIDE, n)
                level = level_of(value, rank_table, rank_count, stored, wanted, RANKED)
                store_value(at + out_channel * stride_c, level, stored, factors + out_channel, wanted, FORM)


@triton.jit
def level_of(value, rank_table, rank_count, stored, mask, RANKED: tl.constexpr):
    """The sample of a coded value (spec §4)."""
    if RANKED:
        if rank_count > 0:
            value = tl.load(rank_table + tl.minimum(value, rank_count - 1), mask=mask, other=0)
    return value - tl.where(stored == INT16, 32768, 0)


@triton.jit
def plane_value(at, mask, WIDE: tl.constexpr):
    found = tl.load(at, mask=mask, other=0).to(tl.int32)
    return found & 0xFFFF if WIDE else found


@triton.jit
def coded_value(base, at, length, mask, WIDE: tl.constexpr, n):
    """A coded value that is stored as it is."""
    value = ops.byte(base, at, length, mask)
    if WIDE:
        value |= ops.byte(base, at + 1, length, mask & (n == 16)) << 8
    return value


@triton.jit
def undo_color(value, near, far, code, n):
    """Undo the color transform of a plane (spec §5.4)."""
    reference = tl.where(code == 2, ops.average(near, far), near)
    return tl.where(code > 0, value + reference - (1 << (n - 1)), value) & ((1 << n) - 1)


@triton.jit
def store_value(at, value, stored, factor, mask, FORM: tl.constexpr):
    """Convert a level and write it. The product and the sum are rounded separately, as on the CPU."""
    if FORM == FLOAT:
        own = factor + stored * 64
        made = value.to(tl.float32) * tl.load(own) + tl.load(own + 3 * 64)
        tl.store(at, made.to(at.dtype.element_ty), mask=mask)
    else:
        tl.store(at, convert_level(value, stored, FORM).to(at.dtype.element_ty), mask=mask)


@triton.jit
def convert_level(value, stored, FORM: tl.constexpr):
    """Convert to another integer type: the non-negative part of the range is scaled to that of the other type."""
    own_bits = tl.where(stored == UINT8, 8, tl.where(stored == UINT16, 16, 15))
    new_bits: tl.constexpr = 8 if FORM == UINT8 else (16 if FORM == UINT16 else 15)
    level = tl.maximum(value, 0)
    smaller = level >> tl.maximum(own_bits - new_bits, 0)
    larger = level << tl.maximum(new_bits - own_bits, 0)
    if FORM == UINT16:
        larger = tl.where(stored == UINT8, level * 257, larger)
    return tl.where(own_bits == new_bits, value, tl.where(own_bits > new_bits, smaller, larger))


def run(batch: DeviceBatch) -> None:
    """Write all images of a batch."""
    staged = batch.staged
    max_steps = staged.max_width + (2 if staged.has(TileKind.CODED) else 1) * (LANES - 1)
    finish_kernel[(batch.tiles.shape[1], triton.cdiv(max_steps, STEPS * TURNS))](
        batch.payload, batch.tiles, batch.tiles.shape[1], batch.images, batch.images.shape[1], batch.ranks,
        batch.factors, batch.values, batch.out, staged.out_channels, FORM=FORMS[batch.out.dtype], WIDE=batch.wide,
        RANKED=batch.ranks.numel() > 0, STEPS=STEPS, TURNS=TURNS, num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
