# SPDX-License-Identifier: Apache-2.0
"""Cells: files of 4096 bytes that one side writes again and again, in place, and the other reads.

In place, because a network file system is sure to show new content of a file that is opened anew (close-to-open), but
may go on for a minute with what it knows about names: a cell that were renamed into place could be the old one for so
long. A reader that comes in the midst of a write sees a wrong checksum and looks again.

    "headrace " crc32c as 8 hexadecimal digits " " JSON in UTF-8, spaces up to 4095 bytes, line feed

The checksum is of all that follows it: the space, the JSON, the spaces and the line feed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from headrace.prongs._exchange import TEMPORARY
from headrace.records._checksum import crc32c, to_hex

CELL_BYTES = 4096
_MAGIC = b"headrace "
_HEAD = len(_MAGIC) + 8
Said = TypeVar("Said")

_LOOKS = 4
_BETWEEN_LOOKS = 0.0005


def pack_cell(document: dict[str, Any]) -> bytes:
    """Give the bytes of a cell."""
    # Half characters, which paths can have, become JSON's own escapes.
    text = b" " + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")
    if len(text) >= CELL_BYTES - _HEAD:
        raise ValueError(f"a cell of {len(text)} bytes; {CELL_BYTES - _HEAD - 1} is the most")
    content = text.ljust(CELL_BYTES - _HEAD - 1) + b"\n"
    return _MAGIC + to_hex(crc32c(content)).encode() + content


def unpack_cell(content: bytes) -> dict[str, Any] | None:
    """Read the bytes of a cell; None if they are not those of a whole one."""
    rest = content[_HEAD:]
    if len(content) != CELL_BYTES or content[:_HEAD] != _MAGIC + to_hex(crc32c(rest)).encode():
        return None
    document = json.loads(rest)
    return document if isinstance(document, dict) else None


def create_cell(path: Path, document: dict[str, Any], token: str) -> None:
    """Make a cell that is whole from the start."""
    write_whole(path, pack_cell(document), token)


def write_cell(path: Path, document: dict[str, Any]) -> bytes:
    """Write a cell that exists, and give its bytes.

    A file system that is full has room for it still, as a rule; it has its block.
    """
    content = pack_cell(document)
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(handle, content, 0)
    finally:
        os.close(handle)  # from here on whoever opens it sees the new content, over NFS too
    return content


def read_cell(path: Path) -> dict[str, Any] | None:
    """Read a cell; None if it is not whole, however often one looks."""
    return CellReader(path, lambda document: document).read()


class CellReader(Generic[Said]):
    """Reads a cell again and again. What has not changed is not taken apart again, so that a look costs 10 µs."""

    def __init__(self, path: Path, parse: Callable[[dict[str, Any]], Said]) -> None:
        self._path, self._parse = path, parse
        self._last: tuple[bytes, Said | None] = (b"", None)

    @property
    def last(self) -> Said | None:
        """What it said when it was last read."""
        return self._last[1]

    def read(self) -> Said | None:
        """Give what it says; None if it is not whole, however often one looks. Any thread may."""
        for look in range(_LOOKS):
            content = cell_content(self._path)
            known, said = self._last
            if content == known:
                return said
            document = unpack_cell(content)
            if document is not None:
                said = self._parse(document)
                self._last = (content, said)
                return said
            if look + 1 < _LOOKS:
                time.sleep(_BETWEEN_LOOKS)
        return None


def cell_content(path: Path) -> bytes:
    """Read the bytes of a cell, whole or not."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(handle, CELL_BYTES + 1, 0)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes, token: str) -> None:
    """Write a file under another name, sync it and give it its name."""
    temporary = path.with_name(f".{path.name}.{token}{TEMPORARY}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        try:
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_all(handle: int, content: Any) -> None:
    """Write all bytes of a buffer, however many of them a call takes."""
    rest = memoryview(content).cast("B")
    while rest:
        rest = rest[os.write(handle, rest) :]
