# SPDX-License-Identifier: Apache-2.0
"""Waves: 32 lanes decode the rows of a plane, each some columns behind the lane above it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from headrace.kernels import _triton_shared as ops
from headrace.kernels._batch import DeviceBatch
from headrace.kernels.backend import sized
from headrace.kernels.tables import SIZES, SLICES, TileKind

CHAINS = sized(2 if torch.version.hip else 1, 256)  # fills a warp, which has 64 lanes on AMD


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def wave_kernel(
    payload, tiles, n_tiles, chains, n_chains, entries, values,
    KIND: tl.constexpr, WIDE: tl.constexpr, CHAINS: tl.constexpr,
):  # fmt: skip
    """Decode CHAINS planes in parallel."""
    SKEW: tl.constexpr = 2 if KIND == ops.CODED else 1
    chain = tl.program_id(0) * CHAINS + tl.arange(0, CHAINS)[None, :]  # [1, CHAINS]
    live = chain < n_chains
    chain = tl.where(live, chain, 0)
    tile = tl.load(chains + chain)
    plane = tl.load(chains + n_chains + chain)
    base, length, channels, n, h, w = ops.tile_header(payload, tiles, n_tiles, tile)
    top = (1 << n) - 1
    steps = tl.where(live, w + SKEW * (h - 1), 0)
    slot = ops.plane_slot(values, tiles, n_tiles, tile, plane, w, SKEW)
    groups = entries + ops.load_int64(tiles, n_tiles, ops.TILE_ENTRIES, tile)

    lane = tl.arange(0, ops.ROWS)[:, None]  # [ROWS, 1]
    first_lane = lane == 0
    above = tl.broadcast_to((lane + ops.ROWS - 1) % ops.ROWS, (ops.ROWS, CHAINS))
    groups += plane * ((h + 3) // 4 * ((w + 3) // 4)) + (lane >> 2) * ((w + 3) // 4)
    in_rows = live & (lane < h)
    columns = tl.where(in_rows, w, 0)  # of each lane; 0 for lanes below the tile
    if KIND == ops.PACKED:
        predictor = packed_predictor(base, channels, plane, length, live)
    elif KIND == ops.CODED:
        predictor = coded_predictors(base, channels, plane, w, length, live)
    else:
        predictor = tl.zeros((1, CHAINS), tl.int32)

    start = tl.zeros((1, CHAINS), tl.int32) if KIND == ops.PALETTE else (top + 1) >> 1
    # Each variable needs its own initial value. Triton finds loop-carried variables by comparing handles and does not
    # carry variables that start as the same handle (its change #7200). The interpreter does not show the difference.
    west = tl.broadcast_to(start, (ops.ROWS, CHAINS))
    north = tl.broadcast_to(start, (ops.ROWS, CHAINS))
    north_west = tl.broadcast_to(start, (ops.ROWS, CHAINS))
    north_east = tl.broadcast_to(start, (ops.ROWS, CHAINS))
    x = tl.broadcast_to(-SKEW * lane, (ops.ROWS, CHAINS))
    slot += tl.broadcast_to(lane, (ops.ROWS, CHAINS))
    # Loads run ahead of their use: the entry of a group by two steps, the bytes of a sample by one.
    if KIND == ops.PACKED:
        entry = load_entry(groups, x, columns)
        coming = load_bytes(base, entry, lane, x, length, WIDE)
        next_entry = load_entry(groups, x + 1, columns)
    else:
        coming = load_residual(slot, x, columns)
    for step in range(tl.max(steps)):
        if KIND == ops.PACKED:
            given = cut_sample(coming, entry, lane, x, WIDE)
            entry = next_entry
            coming = load_bytes(base, entry, lane, x + 1, length, WIDE)
            next_entry = load_entry(groups, x + 2, columns)
        else:
            given = coming.to(tl.int32) & 0xFFFF
            coming = load_residual(slot + ops.ROWS, x + 1, columns)
        north_west = north
        if SKEW == 2:
            north = north_east
            north_east = tl.gather(west, above, 0)
        else:
            north = tl.gather(west, above, 0)
        # In row 0 all neighbors above are W, in column 0 all neighbors to the left are N, as the spec requires.
        upper = tl.where(first_lane, west, north)
        at_left = x == 0
        left = tl.where(at_left, upper, west)
        if KIND == ops.PALETTE:
            west = tl.where(given == 255, tl.where(left == north_west, upper, left), given)
        elif KIND == ops.PACKED:
            west = (predict_packed(left, upper, north_west, predictor) + given) & top
        else:
            ne = tl.where(at_left | first_lane | (x == w - 1), upper, north_east)
            chosen = (predictor >> 4 * (x >> 5 & 7)) & 15
            west = (predict_coded(left, upper, north_west, ne, chosen) + given) & top
        stored = west.to(tl.int16) if WIDE else west.to(tl.uint8)
        tl.store(slot, stored, mask=in_rows & (step < steps))
        slot += ops.ROWS
        x += 1


@triton.jit
def load_residual(slot, x, columns):
    """Load the residual or the exception from the slot."""
    return tl.load(slot, mask=ops.is_below(x, columns), other=0)


@triton.jit
def load_entry(groups, x, columns):
    """Load the offset and width of a lane's group; 0 outside of the tile, which is a sample of 0 bits."""
    return tl.load(groups + (x >> 2), mask=ops.is_below(x, columns), other=0)


@triton.jit
def load_bytes(base, entry, lane, x, length, WIDE: tl.constexpr):
    """The two bytes that hold a packed sample, or its low part and its high part (spec §5.1)."""
    b = entry & 31
    i = (lane & 3) * 4 + (x & 3)
    at = (entry >> 5) + (i * (tl.minimum(b, 8) if WIDE else b) >> 3)
    octets = raw_byte(base, at, length), raw_byte(base, at + 1, length)
    if WIDE:
        at = (entry >> 5) + 16 + (i * tl.maximum(b - 8, 0) >> 3)
        octets = octets[0], octets[1], raw_byte(base, at, length), raw_byte(base, at + 1, length)
    return octets


@triton.jit
def cut_sample(octets, entry, lane, x, WIDE: tl.constexpr):
    """The sample of b bits in those bytes, in two's complement."""
    b = entry & 31
    i = (lane & 3) * 4 + (x & 3)
    low_bits = tl.minimum(b, 8) if WIDE else b
    window = octets[0].to(tl.int32) | octets[1].to(tl.int32) << 8
    sample = (window >> (i * low_bits & 7)) & ((1 << low_bits) - 1)
    if WIDE:
        high_bits = b - low_bits
        window = octets[2].to(tl.int32) | octets[3].to(tl.int32) << 8
        sample |= ((window >> (i * high_bits & 7)) & ((1 << high_bits) - 1)) << 8
    sign = (1 << b) >> 1
    return (sample ^ sign) - sign


@triton.jit
def raw_byte(base, at, length):
    """Load a byte of a tile without converting it, so that nothing waits for it yet; 0 outside of the tile."""
    return tl.load(base + at, mask=ops.is_below(at, length), other=0)


@triton.jit
def packed_predictor(base, channels, plane, length, mask):
    at = 1 + (channels + 3) // 4 + (plane >> 1)
    return (ops.byte(base, at, length, mask) >> 4 * (plane & 1)) & 15


@triton.jit
def coded_predictors(base, channels, plane, w, length, mask):
    """The predictors of up to eight strips, four bits each."""
    stored = ((w + 31) // 32 + 1) // 2
    at = 1 + (channels + 3) // 4 + plane * stored
    found = ops.byte(base, at, length, mask)
    for i in tl.static_range(1, 4):
        found |= ops.byte(base, at + i, length, mask & (i < stored)) << 8 * i
    return found


@triton.jit
def median_of(w, n, nw):
    low = tl.minimum(w, n)
    high = tl.maximum(w, n)
    return low + high - tl.minimum(tl.maximum(nw, low), high)


@triton.jit
def predict_packed(w, n, nw, chosen):
    """Predictors 0 to 2 (spec §5.5), each as the average of two values, which may be equal."""
    median = median_of(w, n, nw)
    flat = ops.average(w, n)
    return ops.average(tl.where(chosen == 0, flat, median), tl.where(chosen == 1, median, flat))


@triton.jit
def predict_coded(w, n, nw, ne, chosen):
    """Predictors 0 to 4 (spec §5.5)."""
    median = median_of(w, n, nw)
    flat = ops.average(w, tl.where(chosen >= 3, ops.average(n, ne), n))
    one = tl.where((chosen == 0) | (chosen == 3), flat, median)
    return ops.average(one, tl.where(chosen == 1, median, flat))


def run(batch: DeviceBatch, kind: TileKind) -> None:
    """Decode the planes of all tiles of a kind to their slots."""
    chains = batch.chains_of(kind)
    n = chains.shape[1]
    wave_kernel[(triton.cdiv(n, CHAINS),)](
        batch.payload, batch.tiles, batch.tiles.shape[1], chains, n, batch.entries, batch.values,
        KIND=int(kind), WIDE=batch.wide, CHAINS=CHAINS, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
