# SPDX-License-Identifier: Apache-2.0
"""A plain writer of `.hri` files for tests and vectors, in which every choice is the caller's, the illegal ones too.

Tiles exist in two forms. `Palette`, `Packed` and `Coded` hold what a tile stores, number by number; `pack` turns that
into bytes and checks nothing. `palette_of`, `packed_of` and `coded_of` fill them from channels of coded values. `build`
adds header, index and checksums; `reseal` mends the checksums of a file whose bytes were changed behind their back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import decoder
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

Plane = list[list[int]]  # [h][w]
CONSTANT, RAW, PALETTE, PACKED, CODED = range(5)


# Bits


def pack_bits(values: Iterable[tuple[int, int]]) -> bytes:
    """One bit string of (value, bits), each lowest bit first."""
    string = "".join(f"{value:0{bits}b}"[::-1] for value, bits in values if bits)
    return int(string[::-1] or "0", 2).to_bytes(-(-len(string) // 8), "little")


def pack_samples(samples: Sequence[int], b: int) -> bytes:
    """§5.1, of any multiple of eight samples."""
    if b <= 8:
        return pack_bits((u, b) for u in samples)
    return bytes(u & 255 for u in samples) + pack_samples([u >> 8 for u in samples], b - 8)


def pack_unary(numbers: Iterable[int]) -> bytes:
    """§5.2; a number may exceed 255, to be taken modulo 256."""
    string = "".join("0" * q + "1" for q in numbers)
    return int(string[::-1] or "0", 2).to_bytes(-(-len(string) // 8), "little")


def pack_numbers(values: Iterable[int], size: int) -> bytes:
    return b"".join(value.to_bytes(size, "little") for value in values)


def zigzag(r: int, n: int = 8) -> int:
    r %= 1 << n
    return 2 * r if r < 1 << n - 1 else 2 * ((1 << n) - r) - 1


# Files


@dataclass
class Fields:
    """The fixed header, §2."""

    width: int
    height: int
    channels: int = 1
    depth: int = 8
    mode: str = "dense"
    signed: bool = False
    log2_tile_width: int = 8
    version: int = decoder.VERSION_BYTE
    flags: int = 0  # further bits
    magic: bytes = b"\x89HRI"
    reserved: bytes = bytes(3)

    def pack(self, metadata_bytes: int, ranks_bytes: int) -> bytes:
        flags = self.flags | (self.mode == "dense") | self.signed << 1
        first = (self.magic, self.version, flags, self.depth, self.channels, self.width, self.height)
        return struct.pack("<4sBBBBHHB3sII", *first, self.log2_tile_width, self.reserved, metadata_bytes, ranks_bytes)

    def tiles(self) -> list[tuple[slice, slice]]:
        """The rows and columns of each tile."""
        w = 1 << self.log2_tile_width
        tops, lefts = range(0, self.height, 32), range(0, self.width, w)
        return [(slice(y, min(y + 32, self.height)), slice(x, min(x + w, self.width))) for y in tops for x in lefts]


def build(fields: Fields, tiles: Sequence[bytes], metadata: bytes = b"", ranks: bytes = b"") -> bytes:
    """A whole file from its parts, with right lengths and checksums."""
    head = fields.pack(len(metadata), len(ranks)) + metadata + ranks
    head += pack_numbers(map(len, tiles), 4) + pack_numbers(map(decoder.crc32c, tiles), 4)
    return head + pack_numbers([decoder.crc32c(head)], 4) + b"".join(tiles)


def index_offset(data: bytes) -> tuple[int, int]:
    """Where the tile lengths begin and how many they are, believing the header."""
    width, height, log2_width, metadata_bytes, ranks_bytes = struct.unpack("<8xHHB3xII", data[:24])
    return 24 + metadata_bytes + ranks_bytes, -(-width // (1 << log2_width)) * -(-height // 32)


def reseal(data: bytes) -> bytes:
    """The same file with checksums that match its bytes and lengths."""
    start, count = index_offset(data)
    offset = start + 8 * count + 4
    sums = []
    for length in struct.unpack(f"<{count}I", data[start : start + 4 * count]):
        sums.append(decoder.crc32c(data[offset : offset + length]))
        offset += length
    head = data[: start + 4 * count] + pack_numbers(sums, 4)
    return head + pack_numbers([decoder.crc32c(head)], 4) + data[start + 8 * count + 4 :]


def patch(data: bytes, offset: int, replacement: bytes) -> bytes:
    """A file with some of its bytes replaced and valid checksums."""
    return reseal(data[:offset] + replacement + data[offset + len(replacement) :])


def pack_metadata(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(bytes([len(key)]) + key + pack_numbers([len(value)], 4) + value for key, value in entries)


def rank_list(values: Sequence[int], depth: int) -> bytes:
    return b"\0" + pack_numbers([len(values)], 4) + pack_numbers(values, depth // 8)


def rank_bitmap(values: Sequence[int]) -> bytes:
    bits = sum(1 << value - values[0] for value in values)
    return b"\1" + pack_numbers([values[0]], 2) + bits.to_bytes(-(-bits.bit_length() // 8), "little")


def channels_of(pixels: npt.NDArray[Any]) -> list[Plane]:
    """The channels of an array [h, w] or [h, w, c]."""
    return [channel.tolist() for channel in np.moveaxis(np.atleast_3d(pixels), 2, 0)]


def encode(
    pixels: npt.NDArray[Any],
    tile: Callable[[list[Plane], int], bytes],
    *,
    mode: str = "dense",
    log2_tile_width: int = 8,
    metadata: bytes = b"",
    ranks: Callable[[Sequence[int]], bytes] | None = None,
) -> bytes:
    """A file of an image; `tile` makes a tile from its channels and n, `ranks` a section from the values in use.

    Where a raw tile is shorter it is written instead, as §2 demands.
    """
    height, width = pixels.shape[:2]
    signed = pixels.dtype == np.int16
    carried = np.atleast_3d(pixels).astype(np.int64) + (32768 if signed else 0)
    depth = 8 * pixels.dtype.itemsize
    fields = Fields(width, height, carried.shape[2], depth, mode, signed, log2_tile_width)
    n, section = depth, b""
    if ranks is not None:
        values, carried = np.unique(carried, return_inverse=True)
        carried = carried.reshape(height, width, fields.channels)
        n, section = 8 if len(values) <= 256 else 16, ranks(values.tolist())
    cuts = [channels_of(carried[rows, columns]) for rows, columns in fields.tiles()]
    tiles = [min(tile(channels, n), raw(channels, n), key=len) for channels in cuts]
    return build(fields, tiles, metadata, section)


# Tiles, §6


def constant(values: Iterable[int], n: int) -> bytes:
    return bytes([CONSTANT]) + pack_numbers(values, n // 8)


def raw(channels: list[Plane], n: int) -> bytes:
    rows = zip(*channels, strict=True)
    pixels = (pixel for row in rows for pixel in zip(*row, strict=True))
    return bytes([RAW]) + pack_numbers((value for pixel in pixels for value in pixel), n // 8)


@dataclass
class Palette:
    n: int
    colours: list[list[int]]  # [colours][channels]
    blocks: list[int]  # a flag for each block
    rows: list[int] = field(default_factory=list)  # a byte for each flagged block
    samples: list[int] = field(default_factory=list)  # a byte for each flagged row
    numbers: list[int] = field(default_factory=list)  # one for each exception

    def pack(self) -> bytes:
        colours = pack_numbers((value for colour in self.colours for value in colour), self.n // 8)
        flags = pack_bits((flag, 1) for flag in self.blocks) + bytes(self.rows) + bytes(self.samples)
        b = (len(self.colours) - 1).bit_length()
        numbers = pack_bits((number, b) for number in self.numbers)
        return bytes([PALETTE, len(self.colours)]) + colours + flags + numbers


def palette_of(channels: list[Plane], n: int, more_colours: Iterable[list[int]] = (), forced: float = 0.0) -> Palette:
    """A palette tile; `forced` is the share of well predicted pixels that are written as exceptions all the same."""
    pixels = [[list(pixel) for pixel in zip(*row, strict=True)] for row in zip(*channels, strict=True)]
    colours = sorted({tuple(pixel) for row in pixels for pixel in row} | {tuple(colour) for colour in more_colours})
    picture = [[colours.index(tuple(pixel)) for pixel in row] for row in pixels]
    h, w = len(picture), len(picture[0])
    rng = np.random.default_rng(h * w)

    def exception(y: int, x: int) -> bool:
        if y == 0 or x == 0:
            predicted = picture[0][x - 1] if x > 0 else picture[y - 1][0] if y > 0 else 0
        else:
            west, north, north_west = picture[y][x - 1], picture[y - 1][x], picture[y - 1][x - 1]
            predicted = north if west == north_west else west
        return picture[y][x] != predicted or bool(rng.random() < forced)

    tile = Palette(n, [list(colour) for colour in colours], [])
    for top in range(0, h, 8):
        for left in range(0, w, 8):
            rows = 0
            for y in range(top, min(top + 8, h)):
                found = [x for x in range(left, min(left + 8, w)) if exception(y, x)]
                if found:
                    rows |= 1 << y - top
                    tile.samples.append(sum(1 << x - left for x in found))
                    tile.numbers += [picture[y][x] for x in found]
            tile.blocks.append(int(rows > 0))
            if rows:
                tile.rows.append(rows)
    return tile


@dataclass
class Packed:
    n: int
    codes: list[int]  # of each channel
    predictors: list[int]  # of each coded plane
    across: int  # groups in a row of groups
    widths: list[list[int]]  # [planes][groups]
    samples: list[list[list[int]]]  # [planes][groups][16], residuals
    section: bytes | None = None  # in place of the widths' own

    def pack(self) -> bytes:
        numbers: list[int] = []
        for plane in self.widths:
            before = [decoder.FIRST_WIDTH, *plane[: self.across - 1], *plane]
            numbers += [zigzag(b - p) for b, p in zip(plane, before, strict=False)]
        section = pack_unary(numbers) if self.section is None else self.section
        head = pack_bits((code, 2) for code in self.codes) + pack_bits((i, 4) for i in self.predictors)
        groups = [
            pack_samples([r % (1 << b) for r in group], b)
            for widths, samples in zip(self.widths, self.samples, strict=True)
            for b, group in zip(widths, samples, strict=True)
        ]
        return bytes([PACKED]) + head + pack_numbers([len(section)], 2) + section + b"".join(groups)


def packed_of(
    channels: list[Plane], n: int, codes: Sequence[int] = (), predictors: Sequence[int] = (), wider: int = 0
) -> Packed:
    """A packed tile of the least widths, or of `wider` ones; by default without colour and with predictor 0."""
    codes = list(codes) or [0] * len(channels)
    ids = list(predictors) or [0] * len(channels)
    tile = Packed(n, codes, ids, -(-len(channels[0][0]) // 4), [], [])
    for plane, predictor in zip(apply_colour(channels, codes, n), ids, strict=True):
        groups = [[signed(r, n) for r in group] for group in squares(residuals(plane, [predictor], n), 4)]
        tile.samples.append(groups)
        tile.widths.append([min(n, wider + max(map(signed_bits, group))) for group in groups])
    return tile


@dataclass
class Coded:
    n: int
    codes: list[int]
    predictors: list[list[int]]  # [planes][strips]
    across: int  # blocks in a row of blocks
    classes: list[list[int]]  # [planes][blocks]
    raws: list[list[list[int]]]  # [planes][blocks][64]
    numbers: list[list[int]]  # [planes][numbers of all its blocks]
    escapes: list[int] = field(default_factory=list)
    extra: list[tuple[int, int]] = field(default_factory=list)  # (x, bits)
    section: bytes | None = None  # in place of the classes' own
    n_escapes: int | None = None  # in place of their true number

    def pack(self) -> bytes:
        table = class_table(self.n)
        class_numbers: list[int] = []
        for plane in self.classes:
            for k, i in enumerate(plane):
                left = plane[k - 1 : k] if k % self.across else []
                above = plane[k - self.across : k - self.across + 1] if k >= self.across else []
                known = left + above or [decoder.FIRST_CLASS]
                class_numbers.append(zigzag(i - decoder.avg(known[0], known[-1])))
        section = pack_unary(class_numbers) if self.section is None else self.section
        sections = [pack_unary(plane) for plane in self.numbers]
        head = pack_bits((code, 2) for code in self.codes)
        head += b"".join(pack_bits((i, 4) for i in plane) for plane in self.predictors)
        raws = [
            pack_samples(raw_bits, table[min(i, len(table) - 1)][0])
            for classes, blocks in zip(self.classes, self.raws, strict=True)
            for i, raw_bits in zip(classes, blocks, strict=True)
        ]
        sizes = [len(part) for part in (section, *sections)]
        if self.n == 16:
            sizes.append(len(self.escapes) if self.n_escapes is None else self.n_escapes)
        parts = [head, pack_numbers(sizes, 2), section, *raws, *sections, pack_numbers(self.escapes, 2)]
        return bytes([CODED]) + b"".join(parts) + pack_bits(self.extra)


def coded_of(
    channels: list[Plane],
    n: int,
    codes: Sequence[int] = (),
    predictors: Sequence[Sequence[int]] = (),
    choose: Callable[[int, int], int | None] = lambda _plane, _block: None,
) -> Coded:
    """A coded tile; `choose` names the class of a block of a coded plane, or None for the cheapest.

    A class that cannot hold the block is replaced by the cheapest that can.
    """
    w = len(channels[0][0])
    codes = list(codes) or [0] * len(channels)
    ids = [list(strips) for strips in predictors] or [[0] * -(-w // 32)] * len(channels)
    tile = Coded(n, codes, ids, -(-w // 8), [], [], [])
    for i, (plane, strips) in enumerate(zip(apply_colour(channels, codes, n), ids, strict=True)):
        tile.classes.append([])
        tile.raws.append([])
        tile.numbers.append([])
        for k, block in enumerate(squares(residuals(plane, strips, n), 8)):
            values = [zigzag(r, n) for r in block]
            wanted = choose(i, k)
            coded = None if wanted is None else write_block(values, wanted, n)
            if wanted is None or coded is None:
                wanted, coded = cheapest(values, n)
            tile.classes[-1].append(wanted)
            tile.raws[-1].append(coded[0])
            tile.numbers[-1] += coded[1]
            tile.escapes += coded[2]
            tile.extra += coded[3]
    return tile


Block = tuple[list[int], list[int], list[int], list[tuple[int, int]]]  # raw bits, numbers, escapes, extra bits


def write_block(values: list[int], class_id: int, n: int) -> Block | None:
    """The 64 values z of a block in a class, or None if it cannot hold them."""
    s, code = class_table(n)[class_id]
    low, high = [z % (1 << s) for z in values], [z >> s for z in values]
    if code in ("zero", "raw"):
        return (low, [], [], []) if not any(high) else None
    if code == "pairs":
        sums = [a + b for a, b in zip(high[::2], high[1::2], strict=True)]
        bits = [min(q.bit_length(), decoder.PAIR_BITS) for q in sums]
        fits = max(sums) < 256 and all(a < 1 << e for a, e in zip(high[::2], bits, strict=True))
        return (low, sums, [], list(zip(high[::2], bits, strict=True))) if fits else None
    if n == 8:
        coded = [write_value(h, code) for h in high]
        return (low, [q for q, _ in coded], [], [extra for _, extra in coded]) if max(high) < 256 else None
    coded = [write_value(min(h, 255), code) for h in high]
    escapes = [z for z, (q, _) in zip(values, coded, strict=True) if q >= decoder.ESCAPE]
    return low, [min(q, decoder.ESCAPE) for q, _ in coded], escapes, [extra for _, extra in coded]


def write_value(h: int, code: str) -> tuple[int, tuple[int, int]]:
    """The number of a value, and its extra bits."""
    bits, base, beyond = decoder.CODES[code]
    for q, first in enumerate(base):
        if first <= h < first + (1 << bits[q]):
            return q, (h - first, bits[q])
    return (h - beyond) % 256, (0, 0)


def cheapest(values: list[int], n: int) -> tuple[int, Block]:
    blocks = [(i, write_block(values, i, n)) for i in range(len(class_table(n)))]
    able = [(i, block) for i, block in blocks if block is not None]
    costs = [
        64 * class_table(n)[i][0] + sum(numbers) + len(numbers) + 16 * len(escapes) + sum(bits for _, bits in extra)
        for i, (_, numbers, escapes, extra) in able
    ]
    return able[costs.index(min(costs))]


def class_table(n: int) -> list[tuple[int, str]]:
    return decoder.CLASSES_8 if n == 8 else decoder.CLASSES_16


# Transforms, the inverses of §5.4 to §5.6


def apply_colour(channels: list[Plane], codes: Sequence[int], n: int) -> list[Plane]:
    """Channels to coded planes."""
    planes = []
    for c in decoder.coded_order(len(channels)):
        near = channels[(c - 1 if c > 0 else 1) % len(channels)]
        far = channels[c - 2] if codes[c] == 2 else near
        shifted = [
            [(v - decoder.avg(a, b) + (1 << n - 1)) % (1 << n) for v, a, b in zip(*rows, strict=True)]
            for rows in zip(channels[c], near, far, strict=True)
        ]
        planes.append(shifted if codes[c] else channels[c])
    return planes


def residuals(plane: Plane, ids: Sequence[int], n: int) -> Plane:
    """Plane values to residuals: the differences from what the decoder predicts."""
    last = len(plane[0]) - 1
    result = []
    for y, row in enumerate(plane):
        above = plane[y - 1]
        predicted = []
        for x in range(last + 1):
            if y == 0 or x == 0:
                predicted.append(row[x - 1] if x > 0 else above[0] if y > 0 else 1 << n - 1)
            else:
                all_five = decoder.predictors(row[x - 1], above[x], above[x - 1], above[min(x + 1, last)])
                predicted.append(all_five[ids[x // 32 if len(ids) > 1 else 0]])
        result.append([(v - p) % (1 << n) for v, p in zip(row, predicted, strict=True)])
    return result


def squares(plane: Plane, size: int) -> list[list[int]]:
    """Blocks or groups of a plane; what sticks out of it is 0."""
    h, w = len(plane), len(plane[0])
    return [
        [plane[y][x] if y < h and x < w else 0 for y in range(top, top + size) for x in range(left, left + size)]
        for top in range(0, h, size)
        for left in range(0, w, size)
    ]


def signed(r: int, n: int) -> int:
    return r - (1 << n) if r >> n - 1 else r


def signed_bits(r: int) -> int:
    """The bits of a number in two's complement; none for 0."""
    return (r if r >= 0 else ~r).bit_length() + 1 if r else 0
