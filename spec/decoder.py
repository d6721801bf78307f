# SPDX-License-Identifier: Apache-2.0
"""A plain decoder of `.hri` images, in the order of image.md: made to be read, and the oracle for every fast decoder.

Comments of the form §5.2 name the spec's sections. Everything is Python integers and lists until the last step; a plane
is a list of rows. A violated MUST raises `CorruptImage` where it is met.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

Plane = list[list[int]]  # [h][w]

# §6.5: a class is (s, code). A code is the extra bits and the bases of q = 0, 1, …, then by how much the base of every
# later q exceeds q; those read no extra bits.
CLASSES_8: list[tuple[int, str]] = [
    *((0, code) for code in ("zero", "pairs", "plain", "tail", "half", "double")),
    *((s, code) for s in (1, 2, 3) for code in ("plain", "half")),
    *((s, "plain") for s in (4, 5, 6)),
    (8, "raw"),
]
CLASSES_16: list[tuple[int, str]] = [
    *((0, code) for code in ("zero", "pairs", "plain", "tail", "half", "double")),
    *((s, code) for s in range(1, 13) for code in ("plain", "half")),
    (13, "plain"),
    (16, "raw"),
]
CODES: dict[str, tuple[list[int], list[int], int]] = {
    "plain": ([], [], 0),
    "half": ([1], [0], 1),
    "double": ([1, 1], [0, 2], 2),
    "tail": ([0, 1, 1], [0, 1, 3], 2),
}
VERSION_BYTE = 0x81  # version 1; bit 7 makes the parity even
NUMBERS_OF_CODE = {"zero": 0, "raw": 0, "pairs": 32, "plain": 64, "half": 64, "double": 64, "tail": 64}
PAIR_BITS = 4  # a pair reads at most so many extra bits
ESCAPE = 12  # with n = 16, numbers from here on are escapes
FIRST_CLASS, FIRST_WIDTH = 8, 4  # from which the first block and the first group of a plane are predicted


class CorruptImage(Exception):
    """The bytes violate the spec: damaged, truncated or hostile."""


class UnsupportedImage(Exception):
    """The file is of a version that this decoder does not know."""


def check(condition: bool, otherwise: str) -> None:
    if not condition:
        raise CorruptImage(otherwise)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def ascending(values: Sequence[Any]) -> bool:
    return all(a < b for a, b in pairwise(values))


class Cursor:
    """Bytes consumed from the front, every length checked before it is believed. A bit string may follow the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.bit = data, 0

    def left(self) -> int:
        return len(self.data) - ceil_div(self.bit, 8)

    def take(self, count: int, what: str) -> bytes:
        check(count <= self.left(), f"{what}: {count} bytes claimed, {self.left()} left")
        start, self.bit = self.bit // 8, self.bit + 8 * count
        return self.data[start : start + count]

    def number(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "little")

    def numbers(self, count: int, size: int, what: str) -> list[int]:
        section = self.take(count * size, what)
        return [int.from_bytes(section[i : i + size], "little") for i in range(0, len(section), size)]

    def take_bits(self, count: int, what: str) -> int:
        """An integer of at most 8 bits, its lowest bit first."""
        check(self.bit + count <= 8 * len(self.data), f"{what} end early")
        window = int.from_bytes(self.data[self.bit // 8 : self.bit // 8 + 2], "little") >> self.bit % 8
        self.bit += count
        return window & ((1 << count) - 1)

    def align(self, what: str) -> None:
        check(self.take_bits(-self.bit % 8, what) == 0, f"unused bits after {what} are not 0")

    def end(self, what: str) -> None:
        check(self.left() == 0, f"{what}: {self.left()} bytes too many")


# §1 The checksum

CRC32C = list(range(256))
for _ in range(8):
    CRC32C = [(value >> 1) ^ (0x82F63B78 if value & 1 else 0) for value in CRC32C]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC32C[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


# §2 The header and the index of tiles


@dataclass(frozen=True)
class Tile:
    top: int
    left: int
    height: int
    width: int
    offset: int  # of its first byte in the file
    length: int
    checksum: int


@dataclass(frozen=True)
class Header:
    width: int
    height: int
    channels: int
    dtype: str
    mode: str
    n: int  # bits of a coded value, §4
    tile_width: int
    metadata: dict[str, bytes]
    ranks: list[int]  # empty: the file has none
    tiles: list[Tile]


def read_header(data: bytes) -> Header:
    cursor = Cursor(data)
    fixed = struct.unpack("<4sBBBBHHB3sII", cursor.take(24, "fixed header"))
    magic, version, flags, depth, channels, width, height, log2_width, reserved, metadata_bytes, ranks_bytes = fixed
    check(magic == b"\x89HRI", f"the magic is {magic!r}: not an .hri file")
    check(version.bit_count() % 2 == 0, f"the version byte {version:#x} has odd parity")
    if version != VERSION_BYTE:
        raise UnsupportedImage(f"version {version & 127}; this decoder knows version 1")
    check(flags < 4, f"flags are {flags:#x}")
    check(depth in (8, 16), f"depth is {depth}")
    check(depth == 16 or flags & 2 == 0, "signed samples of 8 bits")
    check(1 <= channels <= 64, f"{channels} channels")
    check(width > 0 and height > 0, f"{width} x {height} pixels")
    check(5 <= log2_width <= 8, f"log2 of tile_width is {log2_width}")
    check(reserved == bytes(3), "reserved bytes are not 0")

    tile_width = 1 << log2_width
    count = ceil_div(width, tile_width) * ceil_div(height, 32)
    check(24 + metadata_bytes + ranks_bytes + 8 * count + 4 <= len(data), "the file is shorter than its header")
    metadata = read_metadata(Cursor(cursor.take(metadata_bytes, "metadata")))
    ranks = read_ranks(Cursor(cursor.take(ranks_bytes, "ranks")), depth) if ranks_bytes else []
    n = 8 if depth == 8 or 2 <= len(ranks) <= 256 else 16
    lengths = cursor.numbers(count, 4, "tile lengths")
    sums = cursor.numbers(count, 4, "tile sums")
    offset = cursor.bit // 8 + 4
    check(cursor.number(4, "header sum") == crc32c(data[: offset - 4]), "the header sum does not match")
    check(offset + sum(lengths) == len(data), "tile lengths do not add up to the file's length")

    tiles: list[Tile] = []
    corners = [(top, left) for top in range(0, height, 32) for left in range(0, width, tile_width)]
    for (top, left), length, checksum in zip(corners, lengths, sums, strict=True):
        h, w = min(32, height - top), min(tile_width, width - left)
        bound = 1 + h * w * channels * n // 8
        check(2 <= length <= bound, f"tile {len(tiles)} has {length} bytes, not 2 to {bound}")
        tiles.append(Tile(top, left, h, w, offset, length, checksum))
        offset += length
    dtype, mode = "int16" if flags & 2 else f"uint{depth}", "dense" if flags & 1 else "fast"
    return Header(width, height, channels, dtype, mode, n, tile_width, metadata, ranks, tiles)


def read_metadata(section: Cursor) -> dict[str, bytes]:  # §3
    entries: dict[str, bytes] = {}
    last = b""
    while section.left():
        key = section.take(section.number(1, "bytes of a metadata key"), "metadata key")
        check(key > last, f"metadata key {key!r} is empty or not above {last!r}")
        try:
            name, last = key.decode(), key
        except UnicodeDecodeError:
            raise CorruptImage(f"metadata key {key!r} is not UTF-8") from None
        entries[name] = section.take(section.number(4, "bytes of a metadata value"), "metadata value")
    return entries


def read_ranks(section: Cursor, depth: int) -> list[int]:  # §4
    form = section.number(1, "form of the ranks")
    check(form in (0, 1), f"ranks of form {form}")
    if form == 0:
        values = section.numbers(section.number(4, "count of ranks"), depth // 8, "ranks")
        check(ascending(values), "ranks are not strictly ascending")
        section.end("ranks")
    else:
        first = section.number(2, "first rank")
        bits = section.numbers(section.left(), 1, "bitmap")
        check(bits != [] and bits[0] & 1 == 1, "the bitmap does not begin with a one bit")
        check(bits[-1] != 0, "the bitmap ends in a zero byte")
        values = [first + i for i in range(8 * len(bits)) if bits[i // 8] >> (i % 8) & 1]
    check(len(values) >= 2, f"a count of {len(values)} ranks")
    check(values[-1] < 1 << depth, f"rank {values[-1]} exceeds {depth} bits")
    return values


# §5 Building blocks


def avg(a: int, b: int) -> int:
    return (a + b + 1) >> 1


def unpack(data: bytes, b: int) -> list[int]:
    """Samples of b bits, 1 to 8, back to back, as many as the bytes hold."""
    bits = int.from_bytes(data, "little")
    return [bits >> i & ((1 << b) - 1) for i in range(0, 8 * len(data) - b + 1, b)]


def take_samples(cursor: Cursor, count: int, b: int, what: str) -> list[int]:
    """§5.1: samples of b bits; where b exceeds 8, all low bytes come first."""
    if b <= 8:
        return unpack(cursor.take(count * b // 8, what), b) if b > 0 else [0] * count
    low = cursor.take(count, what)
    return [x + 256 * y for x, y in zip(low, take_samples(cursor, count, b - 8, what), strict=True)]


def unary(section: bytes, m: int) -> list[int]:
    """§5.2: the lengths of the runs of zeros before each one."""
    check(section == b"" or section[-1] != 0, "a unary section ends in a zero byte")
    *runs, _ = f"{int.from_bytes(section, 'little'):b}"[::-1].split("1")
    check(len(runs) == m, f"a unary section of {len(runs)} numbers, not {m}")
    return [len(run) % 256 for run in runs]


def unzigzag(z: int, n: int = 8) -> int:
    """§5.3."""
    return z >> 1 if z % 2 == 0 else (1 << n) - 1 - (z >> 1)


def coded_order(channels: int) -> list[int]:
    return [1, 0, *range(2, channels)] if channels > 1 else [0]


def read_colour(cursor: Cursor, channels: int) -> list[int]:
    """§5.4: a code for each channel."""
    codes = unpack(cursor.take(ceil_div(channels, 4), "colour"), 2)
    check(not any(codes[channels:]), "unused colour bits are not 0")
    highest = {0: 1} | {coded_order(channels)[0]: 0}
    for channel, code in enumerate(codes[:channels]):
        check(code <= highest.get(channel, 2), f"colour code {code} of channel {channel}")
    return codes[:channels]


def undo_colour(planes: list[Plane], codes: list[int], n: int) -> list[Plane]:
    """Coded planes to channels in their own order."""
    channels: dict[int, Plane] = {}
    for c, plane in zip(coded_order(len(planes)), planes, strict=True):
        if codes[c] > 0:
            near = channels[c - 1 if c > 0 else 1]
            far = channels[c - 2] if codes[c] == 2 else near
            for row, a, b in zip(plane, near, far, strict=True):
                row[:] = [(v - (1 << n - 1) + avg(*ref)) % (1 << n) for v, *ref in zip(row, a, b, strict=True)]
        channels[c] = plane
    return [channels[c] for c in range(len(planes))]


def predictors(w: int, n: int, nw: int, ne: int) -> tuple[int, ...]:
    """§5.5: the prediction of each."""
    low, high = min(w, n), max(w, n)
    med = low + high - min(max(nw, low), high)
    soft = avg(w, avg(n, ne))
    return avg(w, n), med, avg(med, avg(w, n)), soft, avg(med, soft)


def predict(plane: Plane, ids: Sequence[int], n: int) -> Plane:
    """Residuals to plane values, in place; one predictor for the plane or one for each strip of 32 columns."""
    last = len(plane[0]) - 1
    of_column = [ids[x // 32 if len(ids) > 1 else 0] for x in range(last + 1)]
    above: list[int] = []
    for row in plane:
        for x, residual in enumerate(row):
            if not above:
                predicted = row[x - 1] if x > 0 else 1 << n - 1
            elif x == 0:
                predicted = above[0]
            else:
                predicted = predictors(row[x - 1], above[x], above[x - 1], above[min(x + 1, last)])[of_column[x]]
            row[x] = (predicted + residual) % (1 << n)
        above = row
    return plane


def read_predictors(cursor: Cursor, count: int, highest: int) -> list[int]:
    ids = unpack(cursor.take(ceil_div(count, 2), "predictors"), 4)
    check(not any(ids[count:]), "unused predictor bits are not 0")
    check(max(ids) <= highest, f"predictor id {max(ids)}")
    return ids[:count]


def unblock(squares: Iterable[list[int]], size: int, h: int, w: int) -> Plane:
    """§5.6: squares of samples to rows; what sticks out of the tile is dropped."""
    plane = [[0] * w for _ in range(h)]
    corners = [(top, left) for top in range(0, h, size) for left in range(0, w, size)]
    for (top, left), square in zip(corners, squares, strict=True):
        for y in range(top, min(top + size, h)):
            start = (y - top) * size
            plane[y][left : left + size] = square[start : start + min(size, w - left)]
    return plane


# §6 Tiles


def decode_tile(data: bytes, header: Header, tile: Tile) -> list[Plane]:
    check(crc32c(data) == tile.checksum, "the tile sum does not match")
    cursor = Cursor(data)
    kind = cursor.number(1, "kind")
    check(kind <= 4 and kind != {"fast": 4, "dense": 3}[header.mode], f"kind {kind} in mode {header.mode}")
    read = (read_constant, read_raw, read_palette, read_packed, read_coded)[kind]
    planes = read(cursor, header, tile.height, tile.width)
    cursor.end("tile")
    return planes


def read_constant(cursor: Cursor, header: Header, h: int, w: int) -> list[Plane]:  # §6.1
    return [[[value] * w for _ in range(h)] for value in cursor.numbers(header.channels, header.n // 8, "constant")]


def read_raw(cursor: Cursor, header: Header, h: int, w: int) -> list[Plane]:  # §6.2
    rows = [cursor.numbers(w * header.channels, header.n // 8, "raw samples") for _ in range(h)]
    return [[row[c :: header.channels] for row in rows] for c in range(header.channels)]


def read_palette(cursor: Cursor, header: Header, h: int, w: int) -> list[Plane]:  # §6.3
    count = cursor.number(1, "count of colours")
    check(count >= 2, f"a palette of {count} colours")
    colours = [cursor.numbers(header.channels, header.n // 8, "colours") for _ in range(count)]
    check(ascending(colours), "colours are not strictly ascending")

    blocks = [(top, left) for top in range(0, h, 8) for left in range(0, w, 8)]
    flags = unpack(cursor.take(ceil_div(len(blocks), 8), "flags of blocks"), 1)
    check(not any(flags[len(blocks) :]), "unused flags of blocks are not 0")
    blocks = [block for block, flag in zip(blocks, flags, strict=False) if flag]
    flags = cursor.numbers(len(blocks), 1, "flags of rows")
    check(0 not in flags, "a flagged block has no row with exceptions")
    rows = [(top + y, left) for (top, left), bits in zip(blocks, flags, strict=True) for y in range(8) if bits >> y & 1]
    flags = cursor.numbers(len(rows), 1, "flags of samples")
    check(0 not in flags, "a flagged row has no exception")
    places = [(y, left + x) for (y, left), bits in zip(rows, flags, strict=True) for x in range(8) if bits >> x & 1]
    check(all(y < h and x < w for y, x in places), "an exception is outside of the tile")
    exceptions = {place: cursor.take_bits((count - 1).bit_length(), "colour numbers") for place in places}
    cursor.align("colour numbers")
    check(max(exceptions.values(), default=0) < count, "a colour number is not below the count of colours")

    numbers = [[0] * w for _ in range(h)]
    for y, row in enumerate(numbers):
        above = numbers[y - 1]  # in row 0 it is not used
        for x in range(w):
            if y == 0 or x == 0:
                predicted = row[x - 1] if x > 0 else above[0] if y > 0 else 0
            else:
                predicted = above[x] if row[x - 1] == above[x - 1] else row[x - 1]
            row[x] = exceptions.get((y, x), predicted)
    return [[[colours[number][c] for number in row] for row in numbers] for c in range(header.channels)]


def read_packed(cursor: Cursor, header: Header, h: int, w: int) -> list[Plane]:  # §6.4
    n, across, groups = header.n, ceil_div(w, 4), ceil_div(h, 4) * ceil_div(w, 4)
    codes = read_colour(cursor, header.channels)
    ids = read_predictors(cursor, header.channels, 2)
    section = cursor.take(cursor.number(2, "bytes of the widths"), "widths")
    numbers = iter(unary(section, header.channels * groups))
    widths = [read_widths(numbers, groups, across, n) for _ in ids]
    planes = []
    for predictor, plane in zip(ids, widths, strict=True):
        residuals = [[sign_extend(u, b) for u in take_samples(cursor, 16, b, "groups")] for b in plane]
        planes.append(predict(unblock(residuals, 4, h, w), [predictor], n))
    return undo_colour(planes, codes, n)


def read_widths(numbers: Iterator[int], groups: int, across: int, n: int) -> list[int]:
    """The width of each group of a plane."""
    widths: list[int] = []
    for g in range(groups):
        p = widths[g - across] if g >= across else widths[g - 1] if g > 0 else FIRST_WIDTH
        widths.append((p + unzigzag(next(numbers))) % 256)
        check(widths[g] <= n, f"group {g} has a width of {widths[g]} bits")
    return widths


def sign_extend(u: int, b: int) -> int:
    return u - (1 << b) if b > 0 and u >> (b - 1) else u


def read_coded(cursor: Cursor, header: Header, h: int, w: int) -> list[Plane]:  # §6.5
    n, channels, blocks = header.n, header.channels, ceil_div(h, 8) * ceil_div(w, 8)
    table = CLASSES_8 if n == 8 else CLASSES_16
    codes = read_colour(cursor, channels)
    ids = [read_predictors(cursor, ceil_div(w, 32), 4) for _ in range(channels)]
    class_bytes = cursor.number(2, "bytes of the classes")
    unary_bytes = cursor.numbers(channels, 2, "bytes of the unary sections")
    n_escapes = cursor.number(2, "number of escapes") if n == 16 else 0
    class_numbers = iter(unary(cursor.take(class_bytes, "classes"), channels * blocks))
    classes = [[table[i] for i in read_classes(class_numbers, blocks, ceil_div(w, 8), len(table))] for _ in ids]
    raws = [[take_samples(cursor, 64, s, "raw bits") for s, _ in plane] for plane in classes]
    sections = [cursor.take(size, "unary section") for size in unary_bytes]
    escapes = Cursor(cursor.take(2 * n_escapes, "escapes"))
    planes = []
    for plane, raw, section, strips in zip(classes, raws, sections, ids, strict=True):
        numbers = iter(unary(section, sum(NUMBERS_OF_CODE[code] for _, code in plane)))
        residuals = []
        for (s, code), low in zip(plane, raw, strict=True):
            values = read_values(s, code, low, numbers, cursor, escapes if n == 16 else None)
            residuals.append([unzigzag(z % (1 << n), n) for z in values])
        planes.append(predict(unblock(residuals, 8, h, w), strips, n))
    escapes.end("escapes")
    cursor.align("extra bits")
    return undo_colour(planes, codes, n)


def read_classes(numbers: Iterator[int], blocks: int, across: int, classes: int) -> list[int]:
    """The class of each block of a plane."""
    ids: list[int] = []
    for k in range(blocks):
        left, above = ids[k - 1] if k % across else None, ids[k - across] if k >= across else None
        known = [i for i in (left, above) if i is not None] or [FIRST_CLASS]
        ids.append((avg(known[0], known[-1]) + unzigzag(next(numbers))) % 256)
        check(ids[k] < classes, f"block {k} has class {ids[k]}")
    return ids


def read_values(
    s: int, code: str, low: list[int], numbers: Iterator[int], extra: Cursor, escapes: Cursor | None
) -> list[int]:
    """The 64 values z of a block whose raw bits are `low`, not yet modulo 2^n."""
    if code in ("zero", "raw"):
        return low
    values = []
    if code == "pairs":
        for q in islice(numbers, 32):
            x = extra.take_bits(min(q.bit_length(), PAIR_BITS), "extra bits")
            values += [x, (q - x) % 256]
        return values
    bits, base, beyond = CODES[code]
    for q, raw in zip(islice(numbers, 64), low, strict=True):
        if escapes is not None and q >= ESCAPE:
            values.append(escapes.number(2, "escapes"))
        else:
            h = base[q] + extra.take_bits(bits[q], "extra bits") if q < len(base) else q + beyond
            values.append((h % 256 << s) + raw)
    return values


# §7 Regions


def decode(data: bytes, region: tuple[int, int, int, int] | None = None) -> npt.NDArray[Any]:
    """The pixels of a file, or of its `region` (top, left, height, width)."""
    header = read_header(data)
    top, left, height, width = region or (0, 0, header.height, header.width)
    if min(top, left) < 0 or min(height, width) < 1 or top + height > header.height or left + width > header.width:
        raise ValueError(f"region {region} is not within the {header.height} x {header.width} pixels of the image")
    pixels = np.zeros((height, width, header.channels), np.int32)
    for i, tile in enumerate(header.tiles):
        y0, y1 = max(tile.top, top), min(tile.top + tile.height, top + height)
        x0, x1 = max(tile.left, left), min(tile.left + tile.width, left + width)
        if y0 >= y1 or x0 >= x1:
            continue
        try:
            planes = decode_tile(data[tile.offset : tile.offset + tile.length], header, tile)
        except CorruptImage as error:
            raise CorruptImage(f"tile {i} at byte {tile.offset}: {error}") from None
        for c, plane in enumerate(planes):
            rows = [row[x0 - tile.left : x1 - tile.left] for row in plane[y0 - tile.top : y1 - tile.top]]
            if header.ranks:
                rows = [[header.ranks[min(rank, len(header.ranks) - 1)] for rank in row] for row in rows]
            pixels[y0 - top : y1 - top, x0 - left : x1 - left, c] = rows
    carried = pixels - 32768 if header.dtype == "int16" else pixels
    return carried.astype(header.dtype).reshape((height, width, header.channels)[: 2 if header.channels == 1 else 3])


def inspect(data: bytes) -> dict[str, Any]:
    """What the header says, once it has passed every check."""
    return {**vars(read_header(data)), "bytes": len(data)}
