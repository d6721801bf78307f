# SPDX-License-Identifier: Apache-2.0
"""A small file cannot make the decoder take much memory, whatever it claims."""

from __future__ import annotations

import struct
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.codec.implementations import Implementation, Native, writer

import headrace
from headrace.errors import CorruptImage, ImageTooLarge

if TYPE_CHECKING:
    from pathlib import Path

HUGE = writer.Fields(65535, 65535, 64, 16, "dense", log2_tile_width=8)

# What growth is not the decoder's: Python makes an exception and its message.
ALLOWED_KIB = 512

# Its own process, so that nothing but the call can raise the high-water mark; the warm-up takes what a first call may.
MEASURE = """
import resource, sys
import headrace
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    try:
        headrace.decode(data)
        print("decoded")
    except headrace.errors.HeadraceError as error:
        print(type(error).__name__, end=" ")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def claims() -> dict[str, bytes]:
    """Files of 100 bytes that promise gigabytes."""
    rest = bytes(range(100))[24:]
    return {
        "pixels": HUGE.pack(0, 0) + rest,
        "metadata": HUGE.pack(0xFFFFFFFF, 0) + rest,
        "ranks": HUGE.pack(0, 0xFFFFFFFF) + rest,
        "both": HUGE.pack(0xFFFFFFFF, 0xFFFFFFFF) + rest,
        "one row": writer.Fields(65535, 1, 64, 16, "fast", log2_tile_width=5).pack(0, 0) + rest,
    }


@cache
def constant_bomb() -> bytes:
    """A sound file of 5.2 MB for 65535 x 65535 pixels, of which every tile says the least that a tile can."""
    fields = writer.Fields(65535, 65535, 1, 8, "dense", log2_tile_width=8)
    n_tiles = len(fields.tiles())
    head = fields.pack(0, 0) + struct.pack("<I", 2) * n_tiles
    tile = b"\0\7"
    head += struct.pack("<I", writer.decoder.crc32c(tile)) * n_tiles
    sealed: bytes = head + struct.pack("<I", writer.decoder.crc32c(head)) + tile * n_tiles
    return sealed


@pytest.mark.parametrize("claim", claims())
def test_claims_of_100_bytes_are_refused(implementation: Implementation, claim: str) -> None:
    data = claims()[claim]
    assert len(data) == 100

    with pytest.raises(CorruptImage):
        implementation.decode(data)


def test_refusing_takes_no_memory(tmp_path: Path) -> None:
    sound = headrace.encode(np.zeros((40, 40), np.uint8))
    files = {"warm-up": sound[:-1], **claims(), "constant tiles": constant_bomb()}
    paths = [tmp_path / name for name in files]
    for path, data in zip(paths, files.values(), strict=True):
        path.write_bytes(data)

    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, paths)], capture_output=True, text=True, check=True, timeout=60
    )

    lines = [line.split() for line in done.stdout.splitlines()]
    assert [error for error, _ in lines] == ["CorruptImage"] * (len(files) - 1) + ["ImageTooLarge"]
    peaks = [int(peak) for _, peak in lines]
    assert max(peaks[:-1]) - peaks[0] < ALLOWED_KIB
    assert peaks[-1] - peaks[0] < ALLOWED_KIB + 2 * len(files["constant tiles"]) // 1024  # as read from disk


def test_a_sound_bomb_gives_its_regions(native: Native) -> None:
    """The whole is beyond `max_pixels`; a corner of it costs what a corner costs."""
    data = constant_bomb()

    with pytest.raises(ImageTooLarge):
        native.decode(data)
    assert headrace.inspect(data).shape == (65535, 65535)
    np.testing.assert_array_equal(native.decode(data, region=(65434, 65424, 101, 111)), np.full((101, 111), 7))
