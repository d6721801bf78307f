# SPDX-License-Identifier: Apache-2.0
"""PNG files of every color type, depth, interlacing and filter, written as plainly as possible."""

from __future__ import annotations

import functools
import struct
import zlib
from itertools import product

import numpy as np
from tests.formats.pictures import png_chunk

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Of each color type, as stored."""
KINDS = [*product([0], [1, 2, 4, 8, 16]), *product([3], [1, 2, 4, 8]), *product([2, 4, 6], [8, 16])]
"""All pairs of color type and depth."""
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
"""First column, first row, and the distances between columns and between rows, of each pass."""
MIXED = 5
"""In place of a filter: any of them in each row."""


def pack(samples: np.ndarray, depth: int) -> np.ndarray:
    """The bytes of rows [H, W, C]."""
    height = samples.shape[0]
    if depth == 16:
        return samples.astype(">u2").reshape(height, -1).view(np.uint8)
    bits = np.unpackbits(samples.astype(np.uint8).reshape(height, -1, 1), axis=2)[:, :, 8 - depth :]
    return np.packbits(bits.reshape(height, -1), axis=1)


def filtered(rows: np.ndarray, pixel_bytes: int, filters: list[int]) -> bytes:
    """Rows with their filters, as the PNG specification says them."""
    out = []
    above = np.zeros(rows.shape[1] + pixel_bytes, int)
    for row, number in zip(rows.astype(int), filters, strict=True):
        padded = np.concatenate((np.zeros(pixel_bytes, int), row))
        a, b, c = padded[:-pixel_bytes], above[pixel_bytes:], above[:-pixel_bytes]
        to_a, to_b, to_c = np.abs(b - c), np.abs(a - c), np.abs(a + b - 2 * c)
        paeth = np.where((to_a <= to_b) & (to_a <= to_c), a, np.where(to_b <= to_c, b, c))
        predicted = [np.zeros_like(row), a, b, (a + b) // 2, paeth][number]
        out.append(bytes([number]) + ((row - predicted) & 255).astype(np.uint8).tobytes())
        above = padded
    return b"".join(out)


def write(
    samples: np.ndarray, kind: int, depth: int, *, interlaced: bool, number: int, rng: np.random.Generator
) -> bytes:
    """A file of samples [H, W, C] with one filter, or all, and with one IDAT chunk or several."""
    passes = [samples[y::rows, x::columns] for x, y, columns, rows in ADAM7] if interlaced else [samples]
    pixel_bytes = max(1, depth * CHANNELS[kind] // 8)
    data = b""
    for part in passes:
        if part.size:
            filters = rng.integers(0, 5, len(part)).tolist() if number == MIXED else [number] * len(part)
            data += filtered(pack(part, depth), pixel_bytes, filters)
    stream = zlib.compress(data, int(rng.integers(0, 10)))
    return wrap(samples.shape[1], samples.shape[0], kind, depth, [stream], interlaced=interlaced)


def wrap(width: int, height: int, kind: int, depth: int, streams: list[bytes], *, interlaced: bool = False) -> bytes:
    """A file around the contents of its IDAT chunks; a palette has all the entries that its depth allows."""
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced))
    palette = png_chunk(b"PLTE", palette_of(depth).tobytes()) if kind == 3 else b""
    data = b"".join(png_chunk(b"IDAT", stream) for stream in streams)
    return b"\x89PNG\r\n\x1a\n" + head + palette + data + png_chunk(b"IEND", b"")


def palette_of(depth: int) -> np.ndarray:
    """The colors that `wrap` gives to indices of so many bits, [N, 3]."""
    return np.random.default_rng(depth).integers(0, 256, (2**depth, 3), dtype=np.uint8)


def decoded(samples: np.ndarray, kind: int, depth: int) -> np.ndarray:
    """The image that a decoder must return for samples [H, W, C]."""
    if kind == 3:
        return palette_of(depth)[samples[..., 0]]
    image = samples * (255 // (2**depth - 1)) if depth < 8 else samples
    image = image.astype(np.uint16 if depth == 16 else np.uint8)
    return image[..., 0] if CHANNELS[kind] == 1 else image


@functools.cache
def every_file(kind: int, depth: int) -> list[tuple[np.ndarray, bytes]]:
    """Samples and file for each filter, interlaced or not, in sizes at which passes are empty and rows are short."""
    rng = np.random.default_rng([kind, depth])
    files = []
    for height, width in ((1, 1), (1, 40), (40, 1), (3, 2), (9, 70), (13, 11)):
        for interlaced, number in product((False, True), range(MIXED + 1)):
            samples = rng.integers(0, 2**depth, (height, width, CHANNELS[kind]))
            if number % 2:  # small differences: many ties between the three neighbors of a pixel
                samples = (np.cumsum(samples % 3, axis=1) + np.arange(height)[:, None, None]) % 2**depth
            files.append((samples, write(samples, kind, depth, interlaced=interlaced, number=number, rng=rng)))
    return files
