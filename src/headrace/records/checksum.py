# SPDX-License-Identifier: Apache-2.0
"""CRC-32C, the checksum of everything in a dataset, of buffers and of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from headrace._core import crc32c as _crc32c
from headrace.files import open_file, read_at

CHUNK = 1 << 20
"""Bytes to read at a time."""


def crc32c(data: Any, seed: int = 0) -> int:
    """Return the checksum of a buffer; `seed` is the checksum of what precedes it. Releases the GIL."""
    return int(_crc32c(data, seed))


def to_hex(checksum: int) -> str:
    return f"{checksum:08x}"


def sum_blocks(path: Path, block_bytes: int = CHUNK, max_blocks: int | None = None) -> tuple[int, str]:
    """Return the size of a file and the checksums in hex of its blocks, or of the first `max_blocks`."""
    handle = open_file(path)
    try:
        reader = SummingReader(handle, n_bytes := os.fstat(handle).st_size, block_bytes)
        return n_bytes, "".join(to_hex(crc32c(block)) for block in islice(reader.read(n_bytes), max_blocks))
    finally:
        os.close(handle)


class SummingReader:
    """Reads a file from start to end in pieces, and computes the checksum of everything it has read."""

    def __init__(self, handle: int, n_bytes: int, piece_bytes: int = CHUNK) -> None:
        self._handle, self.n_bytes = handle, n_bytes
        self.position = self.total = 0
        self._memory = memoryview(bytearray(min(piece_bytes, n_bytes)))

    def read(self, end: int) -> Iterator[memoryview]:
        """Yield the bytes up to `end`, or to the end of the file. A piece is valid until the next one is read."""
        end = min(end, self.n_bytes)
        while self.position < end:
            wanted = min(len(self._memory), end - self.position)
            got = read_at(self._handle, self.position, self._memory[:wanted])
            if got < wanted:
                raise OSError(f"the file was truncated at offset {self.position + got} while it was read")
            piece = self._memory[:wanted]
            self.total = crc32c(piece, self.total)
            self.position += wanted
            yield piece
