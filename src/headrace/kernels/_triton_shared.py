# SPDX-License-Identifier: Apache-2.0
"""What the Triton kernels share: reading tables, bytes and bits within bounds, unary sections, and reporting damage.

No load trusts a position: `byte`, `bits` and `word` are masked by the extent of their tile. Whatever the bytes of a
tile say, no address outside of it is used.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from headrace.kernels import _status
from headrace.kernels.tables import LANES, ImageField, TileField, TileKind

TILE_AT = tl.constexpr(int(TileField.AT))
TILE_LENGTH = tl.constexpr(int(TileField.LENGTH))
TILE_IMAGE = tl.constexpr(int(TileField.IMAGE))
TILE_NUMBER = tl.constexpr(int(TileField.NUMBER))
TILE_KIND = tl.constexpr(int(TileField.KIND))
TILE_BITS = tl.constexpr(int(TileField.BITS))
TILE_CHANNELS = tl.constexpr(int(TileField.CHANNELS))
TILE_HEIGHT = tl.constexpr(int(TileField.HEIGHT))
TILE_WIDTH = tl.constexpr(int(TileField.WIDTH))
TILE_TOP = tl.constexpr(int(TileField.TOP))
TILE_LEFT = tl.constexpr(int(TileField.LEFT))
TILE_VALUES = tl.constexpr(int(TileField.VALUES))
TILE_ENTRIES = tl.constexpr(int(TileField.ENTRIES))
TILE_NUMBERS = tl.constexpr(int(TileField.NUMBERS))

IMAGE_HEIGHT = tl.constexpr(int(ImageField.HEIGHT))
IMAGE_WIDTH = tl.constexpr(int(ImageField.WIDTH))
IMAGE_DTYPE = tl.constexpr(int(ImageField.DTYPE))
IMAGE_RANKS = tl.constexpr(int(ImageField.RANKS))
IMAGE_RANK_COUNT = tl.constexpr(int(ImageField.RANK_COUNT))
IMAGE_OUT = tl.constexpr(int(ImageField.OUT))
IMAGE_STRIDE_C = tl.constexpr(int(ImageField.STRIDE_C))
IMAGE_STRIDE_Y = tl.constexpr(int(ImageField.STRIDE_Y))
IMAGE_STRIDE_X = tl.constexpr(int(ImageField.STRIDE_X))
IMAGE_FLIP = tl.constexpr(int(ImageField.FLIP))

RAW = tl.constexpr(int(TileKind.RAW))
PALETTE = tl.constexpr(int(TileKind.PALETTE))
PACKED = tl.constexpr(int(TileKind.PACKED))
CODED = tl.constexpr(int(TileKind.CODED))

BAD_COLOR = tl.constexpr(int(_status.Reason.COLOR))
BAD_PREDICTOR = tl.constexpr(int(_status.Reason.PREDICTOR))
BAD_SECTION = tl.constexpr(int(_status.Reason.SECTION))
BAD_UNARY = tl.constexpr(int(_status.Reason.UNARY))
BAD_WIDTH = tl.constexpr(int(_status.Reason.WIDTH))
BAD_CLASS = tl.constexpr(int(_status.Reason.CLASS))
BAD_PALETTE = tl.constexpr(int(_status.Reason.PALETTE))
BAD_EXCEPTION = tl.constexpr(int(_status.Reason.EXCEPTION))
BAD_ESCAPES = tl.constexpr(int(_status.Reason.ESCAPES))
BAD_PADDING = tl.constexpr(int(_status.Reason.PADDING))
BAD_LENGTH = tl.constexpr(int(_status.Reason.LENGTH))
LAST_TILE = tl.constexpr(_status.LAST_TILE)
REASON_BITS = tl.constexpr(_status.REASON_BITS)

ROWS = tl.constexpr(LANES)
FIRST_PHASE = tl.constexpr(1)
SECOND_PHASE = tl.constexpr(2)
BOTH_PHASES = tl.constexpr(3)
FIRST_WIDTH = tl.constexpr(4)  # predicts the first group of a plane
FIRST_CLASS = tl.constexpr(8)  # predicts the first block of a plane


def phases_of(device: torch.device) -> tuple[int, ...]:
    """Return the launches of a kernel whose second half reads what other threads wrote to global memory in the first.

    On NVIDIA GPUs a barrier between the halves is enough. On AMD GPUs Triton's barrier waits only for shared memory,
    so each half is a launch.
    """
    return (3,) if device.type == "cpu" or (device.type == "cuda" and torch.version.hip is None) else (1, 2)


@triton.jit
def load_int32(table, n_columns, field: tl.constexpr, column):
    """Load a small number from the tile table or the image table."""
    return tl.load(table + field * n_columns + column).to(tl.int32)


@triton.jit
def load_int64(table, n_columns, field: tl.constexpr, column):
    """Load an offset from the tile table or the image table."""
    return tl.load(table + field * n_columns + column)


@triton.jit
def tile_header(payload, tiles, n_tiles, tile):
    """Return a pointer to the tile's first byte, its length, channels, bits per value, height and width."""
    base = payload + load_int64(tiles, n_tiles, TILE_AT, tile)
    length = load_int32(tiles, n_tiles, TILE_LENGTH, tile)
    channels = load_int32(tiles, n_tiles, TILE_CHANNELS, tile)
    n = load_int32(tiles, n_tiles, TILE_BITS, tile)
    h = load_int32(tiles, n_tiles, TILE_HEIGHT, tile)
    w = load_int32(tiles, n_tiles, TILE_WIDTH, tile)
    return base, length, channels, n, h, w


@triton.jit
def plane_slot(values, tiles, n_tiles, tile, plane, w, SKEW: tl.constexpr):
    """Return a pointer to a plane of a tile in the `values` scratch."""
    return values + load_int64(tiles, n_tiles, TILE_VALUES, tile) + plane.to(tl.int64) * (w + SKEW * (ROWS - 1)) * ROWS


@triton.jit
def is_below(number, bound):
    """Whether 0 <= number < bound, for bound >= 0: as unsigned numbers this is one comparison."""
    return number.to(tl.uint32, bitcast=True) < bound.to(tl.uint32, bitcast=True)


@triton.jit
def byte(base, at, length, mask):
    """Byte `at` of a tile of `length` bytes that starts at `base`; 0 outside of it."""
    return tl.load(base + at, mask=(at >= 0) & (at < tl.where(mask, length, 0)), other=0).to(tl.int32)


@triton.jit
def short(base, at, length, mask):
    """Two bytes of a tile as a number."""
    return byte(base, at, length, mask) | byte(base, at + 1, length, mask) << 8


@triton.jit
def value(base, at, n_bytes, length, mask):
    """A number of one or two bytes of a tile."""
    return byte(base, at, length, mask) | byte(base, at + 1, length, mask & (n_bytes == 2)) << 8


@triton.jit
def bits(base, start, bit, count, length, mask):
    """`count` bits, at most 8, from bit number `bit` after byte `start` of a tile."""
    window = short(base, start + (bit >> 3), length, mask & (count > 0))
    return (window >> (bit & 7)) & ((1 << count) - 1)


@triton.jit
def ones_of(word):
    """Number of bits of a word that are 1."""
    word = word.to(tl.uint32, bitcast=True)
    pairs = word - ((word >> 1) & 0x55555555)
    fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
    return ((((fours + (fours >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def unzigzag(z, top):
    """Inverse zigzag (spec §5.3); `top` is 2^n - 1."""
    return tl.where(z & 1 == 0, z >> 1, top - (z >> 1))


@triton.jit
def average(a, b):
    return (a + b + 1) >> 1


@triton.jit
def unary_positions(base, begin, size, limit, positions, CHUNK: tl.constexpr):
    """Write the positions of the ones of a unary section, modulo 256, and return their number (spec §5.2).

    Each item handles a 32-bit word. A prefix sum of population counts gives the places of its positions. Words whose
    positions would exceed `limit` are not written: the section is then not valid.
    """
    words = base.to(tl.pointer_type(tl.uint32), bitcast=True)
    last = tl.where(size > 0, (begin + size + 3) >> 2, 0)  # an empty section may start outside of the tile
    count = 0
    for first in range(begin >> 2, last, CHUNK):
        place = first + tl.arange(0, CHUNK)
        word = tl.load(words + place, mask=place < last, other=0)
        position = 32 * place - 8 * begin  # of the word's first bit
        ones = tl.where(position < 0, word & (0xFFFFFFFF << tl.maximum(-position, 0).to(tl.uint32)), word)
        kept = 8 * size - position
        ones = tl.where(kept < 32, ones & ((1 << tl.maximum(kept, 0).to(tl.uint32)) - 1), ones)
        n_ones = ones_of(ones)
        rank = count + tl.cumsum(n_ones, 0) - n_ones
        fits = rank + n_ones <= limit
        ones = tl.where(fits, ones, 0)
        rank = rank.to(tl.uint32)
        for bit in tl.static_range(32):
            one = (ones >> bit) & 1
            tl.store(positions + rank, (position + bit).to(tl.uint8), mask=one != 0)
            rank += one
        count += tl.sum(n_ones, 0)
    return count


@triton.jit
def unary_number(positions, index, first, mask):
    """Number `index` of a section whose positions start at index `first`: the distance between two ones, minus 1."""
    here = tl.load(positions + index, mask=mask, other=0).to(tl.int32)
    before = tl.load(positions + index - 1, mask=mask & (index > first), other=255).to(tl.int32)
    return (here - before - 1) & 255


@triton.jit
def ends_in_zero(base, begin, size):
    """Whether the last byte of a section is 0, which is not valid in a unary section."""
    return (size > 0) & (byte(base, begin + size - 1, begin + size, size > 0) == 0)


@triton.jit
def color_code(base, channel, length, mask):
    """The color code of a channel (spec §5.4)."""
    return (byte(base, 1 + (channel >> 2), length, mask) >> 2 * (channel & 3)) & 3


@triton.jit
def color_flaw(base, channels, length):
    """BAD_COLOR if a code is not defined or an unused one is not 0."""
    channel = tl.arange(0, 64)
    stored = channel < (channels + 3) // 4 * 4
    highest = tl.where(channel == 0, 1, tl.where(channel == 1, 0, 2))
    highest = tl.where((channels == 1) | (channel >= channels), 0, highest)
    beyond = stored & (color_code(base, channel, length, stored) > highest)
    return tl.where(tl.max(beyond.to(tl.int32), 0) > 0, BAD_COLOR, 0)


@triton.jit
def report(status, tiles, n_tiles, tile, reason):
    """Set the status of the tile's image if there is a reason."""
    image = load_int64(tiles, n_tiles, TILE_IMAGE, tile)
    number = load_int32(tiles, n_tiles, TILE_NUMBER, tile)
    tl.atomic_max(status + image, reason | ((LAST_TILE - number) << REASON_BITS), mask=reason > 0)
