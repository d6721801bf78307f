# SPDX-License-Identifier: Apache-2.0
"""Small images and files to decode, made by Pillow or by hand."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

# For each lossless format the dtypes and channels that it holds.
HOLDS = {
    "hri": [(dtype, channels) for dtype in ("uint8", "uint16", "int16") for channels in (1, 2, 3, 4, 7)],
    "png": [(dtype, channels) for dtype in ("uint8", "uint16") for channels in (1, 2, 3, 4)],
    "raw": [(dtype, channels) for dtype in ("uint8", "uint16", "int16") for channels in (1, 2, 3, 4, 7)],
    "webp": [("uint8", 1), ("uint8", 3), ("uint8", 4)],
}
EVERY = [(name, dtype, channels) for name, held in HOLDS.items() for dtype, channels in held]


def picture(dtype="uint8", channels=3, height=45, width=37, seed=0):
    """A gradient with noise over the whole range of the dtype."""
    rng = np.random.default_rng([seed, channels, height, width])
    shape = (height, width) if channels == 1 else (height, width, channels)
    limits = np.iinfo(dtype)
    ramp = np.linspace(limits.min, limits.max, num=int(np.prod(shape))).reshape(shape)
    noise = rng.integers(0, (limits.max - limits.min) // 8, shape)
    return np.clip(ramp + noise, limits.min, limits.max).astype(dtype)


def saved(image, kind, **options):
    """A file as Pillow writes it."""
    stream = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(stream, kind, **options)
    return stream.getvalue()


def png_chunk(name, contents):
    return struct.pack(">I", len(contents)) + name + contents + struct.pack(">I", zlib.crc32(name + contents))


def png_file(width, height, depth, kind, rows, *, extra=b"", interlace=0):
    """A PNG file written by hand: `rows` are unfiltered, each with its filter byte."""
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlace)
    body = png_chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", head) + extra + body + png_chunk(b"IEND", b"")


def exif(orientation, order="<"):
    """An EXIF block that says nothing but an orientation."""
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(f"{order}IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
