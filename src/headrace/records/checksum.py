# SPDX-License-Identifier: Apache-2.0
"""CRC-32C, the checksum of everything in a dataset, of buffers and of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Self

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
    with SummingReader(path, block_bytes) as reader:
        blocks = islice(reader.read(reader.n_bytes), max_blocks)
        return reader.n_bytes, "".join(to_hex(crc32c(block)) for block in blocks)


def sum_file(path: Path) -> str:
    """Return the checksum of a file in hex."""
    with SummingReader(path) as reader:
        return reader.finish()


class SummingReader:
    """Reads a file from start to end in pieces, and computes the checksum of everything it has read."""

    def __init__(self, path: Path, piece_bytes: int = CHUNK) -> None:
        self._handle = open_file(path)
        self.n_bytes = os.fstat(self._handle).st_size
        self._position = self._total = 0
        self._memory = memoryview(bytearray(min(piece_bytes, self.n_bytes)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def read(self, end: int) -> Iterator[memoryview]:
        """Yield the bytes up to `end`, or to the end of the file. A piece is valid until the next one is read."""
        end = min(end, self.n_bytes)
        while self._position < end:
            wanted = min(len(self._memory), end - self._position)
            piece = self._memory[:wanted]
            got = read_at(self._handle, self._position, piece)
            if got < wanted:
                raise OSError(f"the file was truncated at offset {self._position + got} while it was read")
            self._total = crc32c(piece, self._total)
            self._position += wanted
            yield piece

    def finish(self) -> str:
        """Read to the end, and return the checksum of the file in hex."""
        for _ in self.read(self.n_bytes):
            pass
        return to_hex(self._total)
