# SPDX-License-Identifier: Apache-2.0
"""The checksum of everything in a dataset: CRC-32C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace._core import crc32c as _crc32c
from headrace.files import read_at

CHUNK = 1 << 20
"""Bytes to sum at a time where there is no other measure."""


def crc32c(data: Any, seed: int = 0) -> int:
    """Sum any buffer; `seed` continues an earlier sum. Releases the GIL."""
    return int(_crc32c(data, seed))


def to_hex(checksum: int) -> str:
    return f"{checksum:08x}"


def read_blocks(handle: int, block_bytes: int) -> Iterator[memoryview]:
    """Yield a file block by block, the last one shorter; a block is valid until the next is asked for."""
    memory = memoryview(bytearray(block_bytes))
    offset = 0
    while got := read_at(handle, offset, memory):
        yield memory[:got]
        offset += got
