# SPDX-License-Identifier: Apache-2.0
"""The residuals of coded tiles.

Three kernels. The first handles a tile: its classes and where everything else of the tile starts. The second handles
a plane: its unary numbers. The third is here. It has one thread per block of 8 x 8 samples, which decodes the block in
order and needs no communication: the prefix sums of the kernels before it say where its numbers and bits start.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headrace.kernels import _triton_shared as ops
from headrace.kernels._batch import BLOCK, DeviceBatch
from headrace.kernels.backend import sized
from headrace.kernels.coded import _numbers as coded
from headrace.kernels.coded._index import coded_index_kernel
from headrace.kernels.coded._numbers import coded_numbers_kernel
from headrace.kernels.tables import LANES, SIZES, SLICES, TileKind

PLANES, INDEX_WARPS = 8, 1  # four rows of blocks of eight planes are the 32 lanes of a warp
BLOCKS, BLOCK_WARPS = sized(64, 128), 2  # the encoder's tiles are 128 pixels wide: 64 blocks per plane
CHAINS, WORDS = sized(1, 64), sized(1, 16)
INDEX_CHUNK, CHUNK = sized(32, 256), sized(64, 256)  # words of a unary section that are read at a time


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=SLICES)
def coded_expand_kernel(
    payload, tiles, n_tiles, chains, n_chains, numbers, entries, values, status,
    WIDE: tl.constexpr, BLOCKS: tl.constexpr, CHAINS: tl.constexpr,
):  # fmt: skip
    """Decode BLOCKS blocks of each of CHAINS planes."""
    chain = tl.program_id(0) * CHAINS + tl.arange(0, CHAINS)[None, :]  # [1, CHAINS]
    live = chain < n_chains
    chain = tl.where(live, chain, 0)
    tile = tl.load(chains + chain)
    plane = tl.load(chains + n_chains + chain)
    base, length, channels, n, h, w = ops.tile_header(payload, tiles, n_tiles, tile)
    across = (w + 7) // 8
    blocks = (h + 7) // 8 * across
    words = entries + ops.load_int64(tiles, n_tiles, ops.TILE_ENTRIES, tile)
    own = words + coded.PLANES_AT + plane * coded.PLANE_WORDS
    extra_before, escapes_before = counts_before(words, plane, live)

    start = tl.program_id(1) * BLOCKS
    block = start + tl.arange(0, BLOCKS)[:, None]  # [BLOCKS, 1]
    inside = live & (block < blocks)  # [BLOCKS, CHAINS] from here on
    entry = words + coded.PLANES_AT + coded.PLANE_WORDS * channels + (plane * blocks + block) * coded.BLOCK_WORDS
    kind = tl.load(entry + coded.CLASS, mask=inside, other=0)
    row = own + coded.ROWS_AT + 2 * (block // across)
    raw_at = tl.load(row, mask=inside, other=0) + tl.load(entry + coded.RAW_AT, mask=inside, other=0)
    first = tl.load(row + 1, mask=inside, other=0) + tl.load(entry + coded.FIRST, mask=inside, other=0)
    counts = tl.load(entry + coded.COUNTS_BEFORE, mask=inside, other=0)
    extra_bit = 8 * tl.load(words + coded.EXTRA_AT) + extra_before + (counts & 0xFFFF)
    escape = escapes_before + (counts >> 16)
    n_escapes = tl.load(words + coded.ESCAPES)
    escapes_at = tl.load(words + coded.ESCAPES_AT)

    code = coded.code_of(kind, n)
    s = coded.raw_bits_of(kind, n)
    paired = code == coded.PAIRS
    there = inside & (coded.numbers_of(kind, n) > 0)
    low, count = coded.one_bit_numbers(code)
    high_mask = tl.where(there, 255, 0)
    low_bits = tl.minimum(s, 8) if WIDE else s
    top = (1 << n) - 1

    from_tile = coded.tile_words(base)
    tile_end = tl.where(inside, (length + 3) >> 2, 0)
    positions = numbers + ops.load_int64(tiles, n_tiles, ops.TILE_NUMBERS, tile)
    positions = positions.to(tl.pointer_type(tl.uint32), bitcast=True) + (first >> 2)
    before = tl.load(positions - 1, mask=there & (first > tl.load(own + coded.PLANE_FIRST)), other=0xFFFFFFFF)
    y = block // across * 8
    x = block % across * 8
    slot = ops.plane_slot(values, tiles, n_tiles, tile, plane, w, 2) + (x + 2 * y) * ops.ROWS + y
    columns = tl.where(inside, w - x, 0)
    for step in range(tl.max(tl.where(live & (start < blocks), tl.minimum(h, 8), 0))):
        left = tl.load(positions, mask=there, other=0)
        right = tl.load(positions + 1, mask=there & (paired == 0), other=0)
        left_numbers = coded.four_numbers(left, before)
        right_numbers = tl.where(paired, left_numbers, coded.four_numbers(right, left))
        before = tl.where(paired, left, right)
        positions += tl.where(paired, 1, 2)
        extra = bit_window(from_tile, extra_bit, tile_end)
        wanted = tl.where(y + step < h, columns, 0)
        for c in tl.static_range(8):
            if c % 4 == 0:
                sample = step * 8 + c
                raw = bit_window(from_tile, 8 * raw_at + sample * low_bits, tile_end)
                if WIDE:
                    more_raw = bit_window(from_tile, 8 * (raw_at + 64) + sample * (s - low_bits), tile_end)
            word = left_numbers if c < 4 else right_numbers
            q = ((word >> tl.where(paired, 8 * (c // 2), 8 * (c % 4))) & 255).to(tl.int32)
            single_bits = tl.where(ops.is_below(q - low, count), 1, 0)
            if c % 2 == 0:
                n_bits = tl.where(paired, coded.pair_bits(q), single_bits)
                bits = extra & ((1 << n_bits) - 1)
                of_pair = bits
                pair_value = of_pair
            else:
                n_bits = single_bits
                bits = extra & n_bits
                pair_value = q - of_pair
            extra >>= n_bits
            extra_bit += n_bits
            value = tl.where(paired, pair_value, q + tl.minimum(tl.maximum(q - low, 0), count) + bits)
            z = ((value & high_mask) << s) + ((raw >> (c % 4) * low_bits) & ((1 << low_bits) - 1))
            if WIDE:
                z += ((more_raw >> (c % 4) * (s - low_bits)) & ((1 << (s - low_bits)) - 1)) << 8
                escaped = there & (n == 16) & (paired == 0) & (q >= coded.ESCAPE)
                in_escapes = escaped & (escape < n_escapes)
                stated = ops.short(base, escapes_at + 2 * escape, length, in_escapes)
                z = tl.where(escaped, stated, z)
                escape += tl.where(escaped, 1, 0)
            z &= top
            residual = tl.where(z & 1 == 0, z >> 1, ~(z >> 1))  # the wave takes it modulo 2^n
            tl.store(slot + c * ops.ROWS, residual.to(tl.int16) if WIDE else residual.to(tl.uint8), mask=c < wanted)
        slot += 2 * ops.ROWS + 1

    flaw = end_flaw(base, words, own, extra_before, escapes_before, length)
    ops.report(status, tiles, n_tiles, tile, tl.where(live & (plane == channels - 1) & (start == 0), flaw, 0))


@triton.jit
def counts_before(words, plane, live):
    """How many extra bits and escapes the earlier planes of a tile have."""
    earlier = tl.arange(0, 64)[:, None]
    counts = tl.load(
        words + coded.PLANES_AT + earlier * coded.PLANE_WORDS + coded.PLANE_COUNTS,
        mask=live & (earlier < plane),
        other=0,
    )  # [64, CHAINS]
    return tl.sum(counts & 0xFFFF, 0)[None, :], tl.sum(counts >> 16, 0)[None, :]


@triton.jit
def bit_window(words, bit, end):
    """The 32 bits of a tile that start at bit number `bit`; 0 for words outside of the tile."""
    at = bit >> 5
    low = tl.load(words + at, mask=ops.is_below(at, end), other=0)
    high = tl.load(words + at + 1, mask=ops.is_below(at + 1, end), other=0)
    return ((high.to(tl.uint64) << 32 | low) >> (bit & 31).to(tl.uint64)).to(tl.uint32).to(tl.int32, bitcast=True)


@triton.jit
def end_flaw(base, words, own, extra_before, escapes_before, length):
    """What is wrong with the end of a tile, given its last plane and the counts of the planes before it."""
    counts = tl.load(own + coded.PLANE_COUNTS)
    extra_bits = extra_before + (counts & 0xFFFF)
    extra_at = tl.load(words + coded.EXTRA_AT)
    flaw = tl.where(escapes_before + (counts >> 16) != tl.load(words + coded.ESCAPES), ops.BAD_ESCAPES, 0)
    flaw = tl.maximum(flaw, tl.where(extra_at + ((extra_bits + 7) >> 3) != length, ops.BAD_LENGTH, 0))
    last = ops.byte(base, extra_at + (extra_bits >> 3), length, (extra_bits & 7) > 0)
    return tl.maximum(flaw, tl.where((last >> (extra_bits & 7)) != 0, ops.BAD_PADDING, 0))


def expand(batch: DeviceBatch) -> None:
    """Compute the residuals of all coded tiles and write them to their slots."""
    own, chains = batch.tiles_of(TileKind.CODED), batch.chains_of(TileKind.CODED)
    n_tiles, n_chains = batch.tiles.shape[1], chains.shape[1]
    scratch = batch.numbers, batch.entries
    phases = ops.phases_of(batch.payload.device)
    max_blocks = LANES // BLOCK * -(-batch.staged.max_width // BLOCK)
    for phase in phases:
        coded_index_kernel[(len(own),)](
            batch.payload, batch.tiles, n_tiles, own, *scratch, batch.status,
            PHASES=phase, PLANES=PLANES, CHUNK=INDEX_CHUNK, num_warps=INDEX_WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    for phase in phases:
        coded_numbers_kernel[(n_chains,)](
            batch.payload, batch.tiles, n_tiles, chains, n_chains, *scratch, batch.status,
            PHASES=phase, WIDE=batch.wide, BLOCKS=BLOCKS, CHUNK=CHUNK, WORDS=WORDS,
            num_warps=BLOCK_WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    coded_expand_kernel[(-(-n_chains // CHAINS), -(-max_blocks // BLOCKS))](
        batch.payload, batch.tiles, n_tiles, chains, n_chains, *scratch, batch.values, batch.status,
        WIDE=batch.wide, BLOCKS=BLOCKS, CHAINS=CHAINS, num_warps=BLOCK_WARPS, enable_fp_fusion=False,
    )  # fmt: skip
