# SPDX-License-Identifier: Apache-2.0
"""The valid vectors: a name, a file and, where it was made from pixels, those pixels.

Each case exercises one thing that the spec allows. Cases made from symbols rather than pixels reach what a sensible
encoder would not write: wrapped sums, long runs, pairs whose first value exceeds their sum.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import decoder
import numpy as np
import writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    Case = tuple[str, bytes, npt.NDArray[Any] | None]
    Tiler = Callable[[list[writer.Plane], int], bytes]

RUNS = [0, 1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 14, 15, 16, 17, 31, 100, 253, 254, 255, 256, 257, 300, 511, 512, 520]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    yield from simple_kinds(rng)
    yield from classes(rng)
    yield from long_runs(rng)
    yield from escapes(rng)
    yield from wraps(rng)
    yield from predictors(rng)
    yield from colours(rng)
    yield from channel_counts(rng)
    yield from shapes(rng)
    yield from tile_widths(rng)
    yield from palettes(rng)
    yield from ranks(rng)
    yield from signed(rng)
    yield from metadata(rng)
    yield from mixed_kinds(rng)


def smooth(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "uint8", noise: int = 2) -> npt.NDArray[Any]:
    """A slope with some noise, wrapped into the type's range."""
    height, width, channels = (*shape, 1)[:3]
    y, x, c = np.ogrid[:height, :width, :channels]
    values: npt.NDArray[Any] = 100 + 3 * y + 2 * x + 40 * c + rng.integers(-noise, noise + 1, (height, width, channels))
    return (values % (1 << 8 * np.dtype(dtype).itemsize)).astype(dtype).reshape(shape)


def constant(channels: list[writer.Plane], n: int) -> bytes:
    return writer.constant([channel[0][0] for channel in channels], n)


def palette(channels: list[writer.Plane], n: int) -> bytes:
    tile = writer.palette_of(channels, n)
    return tile.pack() if len(tile.colours) > 1 else constant(channels, n)


def packed_with(codes: list[int], predictors: list[int]) -> Tiler:
    return lambda channels, n: writer.packed_of(channels, n, codes, predictors).pack()


def coded_with(codes: list[int], predictors: list[list[int]]) -> Tiler:
    return lambda channels, n: writer.coded_of(channels, n, codes, predictors).pack()


def packed(channels: list[writer.Plane], n: int) -> bytes:
    count = len(channels)
    return packed_with(legal_codes(count), [c % 3 for c in range(count)])(channels, n)


def coded(channels: list[writer.Plane], n: int) -> bytes:
    count, strips = len(channels), -(-len(channels[0][0]) // 32)
    return coded_with(legal_codes(count), [[(c + s) % 5 for s in range(strips)] for c in range(count)])(channels, n)


def legal_codes(channels: int) -> list[int]:
    return [1, 0, *(1 + c % 2 for c in range(channels - 2))] if channels > 1 else [0]


MODES: dict[str, Tiler] = {"fast": packed, "dense": coded}


def simple_kinds(rng: np.random.Generator) -> Iterator[Case]:
    for depth in (8, 16):
        dtype = f"uint{depth}"
        top = (1 << depth) - 1
        for name, pixel in (("gray", [top]), ("rgb", [0, top, 200])):
            image = np.full((40, 35, len(pixel)), pixel, dtype)
            image = image[..., 0] if len(pixel) == 1 else image
            yield f"constant-{name}-{depth}", writer.encode(image, constant, mode="fast", log2_tile_width=5), image
        image = rng.integers(0, top + 1, (7, 9, 3)).astype(dtype)
        yield f"raw-rgb-{depth}", writer.encode(image, writer.raw), image


def random_coded(
    rng: np.random.Generator, n: int, plane_classes: list[int], across: int, numbers: list[int] | None = None
) -> writer.Coded:
    """A coded tile of one plane whose blocks have the given classes and random, mostly small, contents."""
    tile = writer.Coded(n, [0], [[0] * -(-across // 4)], across, [plane_classes], [[]], [[]])
    for i in plane_classes:
        s, code = writer.class_table(n)[i]
        tile.raws[0].append(rng.integers(0, 1 << s, 64).tolist())
        count = decoder.NUMBERS_OF_CODE[code]
        block = (rng.geometric(0.4, count) - 1).tolist()
        if numbers and count:
            block[: len(numbers)] = numbers[:count]
        tile.numbers[0] += block
        if n == 16 and count == 64:
            tile.escapes += rng.integers(0, 1 << 16, sum(q % 256 >= decoder.ESCAPE for q in block)).tolist()
        tile.extra += [random_extra(rng, q % 256, code) for q in block]
    return tile


def random_extra(rng: np.random.Generator, q: int, code: str) -> tuple[int, int]:
    of_code = [min(i.bit_length(), decoder.PAIR_BITS) for i in range(256)]
    if code != "pairs":
        of_code = decoder.CODES[code][0] + [0] * 256
    bits = of_code[q]
    return int(rng.integers(0, 1 << bits)), bits


def one_tile(n: int, height: int, width: int, tile: bytes, mode: str = "dense") -> bytes:
    return writer.build(writer.Fields(width, height, 1, n, mode, log2_tile_width=8), [tile])


def classes(rng: np.random.Generator) -> Iterator[Case]:
    for n in (8, 16):
        count = len(writer.class_table(n))
        for i in range(count):
            blocks = [i, 0, 0, 0, 0, i, 0, i]
            tile = random_coded(rng, n, blocks, 4)
            yield f"class-{n}-{i:02}", one_tile(n, 16, 32, tile.pack()), None
        everything = [*range(count), *reversed(range(count))] * (2 if n == 8 else 1)
        tile = random_coded(rng, n, everything, 16)
        tile.predictors = [[0, 1, 2, 4]]
        yield f"classes-{n}-all", one_tile(n, 8 * len(everything) // 16, 128, tile.pack()), None


def long_runs(rng: np.random.Generator) -> Iterator[Case]:
    """Numbers beyond 15 and beyond 255 in every code, with and without raw bits."""
    for n in (8, 16):
        table = writer.class_table(n)
        for code in ("pairs", *decoder.CODES):
            for s in (0, 3):
                if (s, code) in table:
                    i = table.index((s, code))
                    tile = random_coded(rng, n, [0, i, 0, 0], 4, RUNS)
                    yield f"runs-{n}-{code}-{s}", one_tile(n, 8, 32 * 4, wide(tile).pack()), None
    numbers = [15 + 256, 4, 3 + 512, 2, 0, 1 + 256, 0, 1]
    ids = decoder.read_classes(iter([q % 256 for q in numbers]), 8, 4, len(decoder.CLASSES_8))
    tile = replace(random_coded(rng, 8, ids, 4), section=writer.pack_unary(numbers))
    yield "runs-classes", one_tile(8, 16, 32, tile.pack()), None
    tile_of_groups = writer.packed_of([[[128] * 32] * 16], 8)
    numbers = [7 + 512, *([0] * 30), 256]
    tile_of_groups.section = writer.pack_unary(numbers)
    yield "runs-widths", one_tile(8, 16, 32, tile_of_groups.pack(), "fast"), None


ESCAPES = {
    "none": [11, 0, 1, 2, 3, 10, 256, 256 + 11] * 8,
    "some": [12] + [0, 1, 2] * 20 + [13, 300, 11],
    "all": [12, 13, 14, 15, 16, 31, 255, 256 + 12] * 8,
}


def escapes(rng: np.random.Generator) -> Iterator[Case]:
    """Escapes in every code, with and without raw bits; in several planes; in samples outside of the tile."""
    table = writer.class_table(16)
    for code in decoder.CODES:
        for s in (0, 3, 9):
            for share, numbers in ESCAPES.items():
                if (s, code) in table:
                    i = table.index((s, code))
                    tile = wide(random_coded(rng, 16, [0, i, 0, i] if share != "all" else [0, i], 4, numbers))
                    if tile.escapes:
                        tile.escapes[:1] = [0]
                        tile.escapes[-1:] = [65535]
                    yield f"escapes-{share}-{code}-{s}", one_tile(16, 8, 128, tile.pack()), None
    tile = random_coded(rng, 16, [2 if block in (4, 17, 19) else 0 for block in range(20)], 5, ESCAPES["some"])
    tile.predictors = [[3, 4]]
    yield "escapes-outside", one_tile(16, 31, 38, tile.pack()), None
    for dtype in ("uint16", "int16"):
        image = sparse(rng, (33, 70, 3), dtype)
        image[rng.random(image.shape) < 0.005] += 9000
        yield f"escapes-picture-{dtype}", writer.encode(image, coded, log2_tile_width=6), image


def wide(tile: writer.Coded) -> writer.Coded:
    """Empty blocks on the right, so that the tile stays shorter than a raw one."""
    blocks = tile.classes[0]
    more = 16 - len(blocks)
    return replace(
        tile,
        across=16,
        predictors=[[0, 1, 2, 3]],
        classes=[blocks + [0] * more],
        raws=[tile.raws[0] + [[0] * 64] * more],
    )


def wraps(rng: np.random.Generator) -> Iterator[Case]:
    """Residuals of the full range under every predictor, so that sums wrap; junk where blocks stick out of the tile."""
    for n in (8, 16):
        last = len(writer.class_table(n)) - 1
        for predictor in range(5):
            blocks = rng.choice([last, last, last, 0, 2], 4 * 5).tolist()
            tile = random_coded(rng, n, blocks, 5)
            tile.predictors = [[predictor, (predictor + 1) % 5]]
            yield f"wrap-coded-{n}-{predictor}", one_tile(n, 31, 38, tile.pack()), None
        for predictor in range(3):
            widths = rng.choice([n, n, n - 1, 0, 1, 5], 6 * 9).tolist()
            samples = [rng.integers(0, 1 << b, 16).tolist() for b in widths]
            tile_of_groups = writer.Packed(n, [0], [predictor], 9, [widths], [samples])
            yield f"wrap-packed-{n}-{predictor}", one_tile(n, 23, 34, tile_of_groups.pack(), "fast"), None


def predictors(rng: np.random.Generator) -> Iterator[Case]:
    for depth in (8, 16):
        image = smooth(rng, (20, 40), f"uint{depth}")
        for i in range(3):
            data = writer.encode(image, packed_with([0], [i]), mode="fast")
            yield f"predictor-packed-{depth}-{i}", data, image
        for i in range(5):
            yield f"predictor-coded-{depth}-{i}", writer.encode(image, coded_with([0], [[i, i]])), image
        image = smooth(rng, (9, 150), f"uint{depth}")
        yield f"predictor-strips-{depth}", writer.encode(image, coded_with([0], [[4, 3, 2, 1, 0]])), image


def colours(rng: np.random.Generator) -> Iterator[Case]:
    """Every legal combination of codes of three channels, a tile each."""
    combinations = [[a, 0, b] for a in (0, 1) for b in (0, 1, 2)]
    for depth in (8, 16):
        image = smooth(rng, (8, 6 * 32, 3), f"uint{depth}", noise=1)
        for mode in MODES:
            packers = [packed_with(codes, [0] * 3) for codes in combinations]
            coders = [coded_with(codes, [[0]] * 3) for codes in combinations]
            tile = in_turn(packers if mode == "fast" else coders)
            yield f"colour-{mode}-{depth}", writer.encode(image, tile, mode=mode, log2_tile_width=5), image
        image = rng.integers(0, 1 << depth, (16, 16, 4)).astype(f"uint{depth}")
        image[:, 8:] = image[0, 8]
        for mode, tile in MODES.items():
            yield f"wrap-colour-{mode}-{depth}", writer.encode(image, tile, mode=mode), image


def in_turn(tilers: list[Tiler]) -> Tiler:
    """Each tile by the next of `tilers`."""
    left = cycle(tilers)

    def tile(channels: list[writer.Plane], n: int) -> bytes:
        return next(left)(channels, n)

    return tile


def channel_counts(rng: np.random.Generator) -> Iterator[Case]:
    for count in (1, 2, 3, 4, 5, 64):
        for depth in (8, 16):
            shape = (8, 12, count) if count > 1 else (8, 12)
            image = smooth(rng, shape, f"uint{depth}", noise=int(count < 64))
            for mode, tile in MODES.items():
                yield f"channels-{count}-{mode}-{depth}", writer.encode(image, tile, mode=mode), image


def sparse(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "uint8", density: float = 0.02
) -> npt.NDArray[Any]:
    """A flat picture with a few steps: its tiles stay short whatever their shape."""
    steps = (rng.random(shape[:2]) < density) * rng.integers(1, 5, shape[:2])
    values = 120 + steps.cumsum(1) + np.arange(shape[0])[:, None] // 20
    if len(shape) == 3:
        values = values[..., None] + 3 * np.arange(shape[2])
    return values.astype(dtype)


def shapes(rng: np.random.Generator) -> Iterator[Case]:
    sizes = [(1, 1), (1, 37), (37, 1), (1, 600), (600, 1), (2, 2), (31, 33), (32, 32), (33, 31), (63, 65), (65, 63)]
    for height, width in sizes:
        for mode, tile in MODES.items():
            image = sparse(rng, (height, width))
            name = f"shape-{height}x{width}-{mode}"
            yield name, writer.encode(image, tile, mode=mode, log2_tile_width=5), image
    for height, width in [(1, 1), (64, 64), (33, 65)]:
        for mode, tile in MODES.items():
            image = sparse(rng, (height, width, 3), "uint16")
            name = f"shape-{height}x{width}-rgb16-{mode}"
            yield name, writer.encode(image, tile, mode=mode, log2_tile_width=6), image


def tile_widths(rng: np.random.Generator) -> Iterator[Case]:
    for log2_width in range(5, 9):
        image = sparse(rng, (34, (1 << log2_width) + 5), density=0.001)
        for mode, tile in MODES.items():
            name = f"tile-width-{1 << log2_width}-{mode}"
            yield name, writer.encode(image, tile, mode=mode, log2_tile_width=log2_width), image


def palettes(rng: np.random.Generator) -> Iterator[Case]:
    for depth in (8, 16):
        for channels in (1, 3, 5):
            values = rng.integers(0, 1 << depth, (7, channels)).astype(f"uint{depth}")
            labels = rng.integers(0, 7, (6, 8)).repeat(7, 0).repeat(5, 1)[:35, :33]
            image = values[labels] if channels > 1 else values[labels][..., 0]
            yield f"palette-{channels}-{depth}", writer.encode(image, palette, log2_tile_width=5), image
    image = rng.choice(np.array([0, 255], "uint8"), (32, 40))
    yield "palette-two-colours", writer.encode(image, palette, mode="fast"), image
    image = rng.permutation(np.arange(1024) % 255).reshape(32, 32).astype("uint16") * 257
    yield "palette-255-colours", writer.encode(image, palette), image
    image = np.zeros((9, 70), "uint8")
    data = writer.encode(image, lambda channels, n: writer.palette_of(channels, n, [[9]]).pack())
    yield "palette-no-exceptions", data, image
    image = image.copy()
    image[5, 60] = 9
    yield "palette-empty-blocks", writer.encode(image, palette), image
    data = writer.encode(image, lambda channels, n: writer.palette_of(channels, n, forced=0.5).pack())
    yield "palette-needless-exceptions", data, image


def ranks(rng: np.random.Generator) -> Iterator[Case]:
    for depth, counts in ((8, (2, 100, 256)), (16, (2, 256, 257, 700))):
        for count in counts:
            span = min(1 << depth, 4 * count)
            values = np.sort(rng.permutation(span)[:count]) + ((1 << depth) - span) // 2
            image = values[np.arange(32 * 32).reshape(32, 32) * 31 % count].astype(f"uint{depth}")
            data = writer.encode(image, packed, mode="fast", ranks=partial(writer.rank_list, depth=depth))
            yield f"ranks-{depth}-list-{count}", data, image
            yield f"ranks-{depth}-bitmap-{count}", writer.encode(image, coded, ranks=writer.rank_bitmap), image
    tile = writer.raw([[[0, 65535, 32768]]], 16)
    everything = writer.rank_bitmap(range(65536))
    yield "ranks-16-bitmap-65536", writer.build(writer.Fields(3, 1, 1, 16), [tile], ranks=everything), None
    for count, n in ((2, 8), (200, 8), (257, 16)):
        used = list(range(40000, 40000 + 3 * count, 3))
        tile = writer.raw([[[0, count - 1, count, (1 << n) - 1]]], n)
        data = writer.build(writer.Fields(4, 1, 1, 16), [tile], ranks=writer.rank_list(used, 16))
        yield f"ranks-beyond-{count}", data, None
    image = (rng.integers(0, 3, (5, 6)).repeat(5, 0).repeat(4, 1) * 9000).astype("uint16")
    yield "ranks-palette", writer.encode(image, palette, ranks=writer.rank_bitmap), image


def signed(rng: np.random.Generator) -> Iterator[Case]:
    image = (smooth(rng, (20, 30), "uint16").astype(np.int64) - 150).astype("int16")
    for mode, tile in MODES.items():
        yield f"int16-{mode}", writer.encode(image, tile, mode=mode), image
    image = np.array([[-32768, 32767, -1, 0]], "int16")
    yield "int16-extremes", writer.encode(image, writer.raw), image
    image = rng.choice(np.array([-2000, -1, 0, 700], "int16"), (20, 20, 2))
    yield "int16-ranks", writer.encode(image, coded, ranks=partial(writer.rank_list, depth=16)), image


def metadata(rng: np.random.Generator) -> Iterator[Case]:
    image = smooth(rng, (4, 5))
    exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"  # orientation 6: carried, not applied
    entries = {
        "author": b"someone",
        "empty": b"",
        "exif": exif,
        "icc": bytes(range(128)),
        "k" * 255: b"a long key",
        "xmp": b"<x:xmpmeta/>",
        "größe": b"\xff\0",
        "\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff": b"where the lengths of UTF-8 change",
    }
    ordered = sorted((key.encode(), value) for key, value in entries.items())
    yield "metadata", writer.encode(image, writer.raw, metadata=writer.pack_metadata(ordered)), image
    one = writer.pack_metadata([(b"\0", b"\0")])
    data = writer.encode(image, writer.raw, metadata=one, ranks=partial(writer.rank_list, depth=8))
    yield "metadata-and-ranks", data, image


def mixed_kinds(rng: np.random.Generator) -> Iterator[Case]:
    """Every kind that a mode allows, in one file."""
    for mode, entropy in MODES.items():
        image = smooth(rng, (33, 128, 3), noise=1)
        image[:, :32] = (1, 2, 3)
        image[:, 32:64] = np.where(rng.random((33, 32, 1)) < 0.02, (9, 9, 9), (200, 100, 0))
        image[:, 64:96] = rng.integers(0, 256, (33, 32, 3))
        tile = in_turn([constant, palette, writer.raw, entropy])
        yield f"mixed-{mode}", writer.encode(image, tile, mode=mode, log2_tile_width=5), image
