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

from headrace.offload._untrusted import parse_object
from headrace.offload.exchange._files import open_file, opened_folder, replace_file
from headrace.records.checksum import crc32c, to_hex

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
    """Read the bytes of a cell; None if they are not those of an intact one. Never raises."""
    rest = content[_HEAD:]
    if len(content) != CELL_BYTES or content[:_HEAD] != _MAGIC + to_hex(crc32c(rest)).encode():
        return None
    try:
        return parse_object(rest)
    except ValueError:  # the checksum is right, so it was written like this on purpose; it says nothing all the same
        return None


def create_cell(path: Path, document: dict[str, Any], token: str) -> None:
    """Make a cell that is intact from the start."""
    with opened_folder(path.parent) as folder:
        replace_file(path.name, pack_cell(document), token, dir_fd=folder)


def write_cell(path: Path, document: dict[str, Any]) -> bytes:
    """Write a cell that exists, and give its bytes.

    A file system that is full has room for it still, as a rule; it has its block.
    """
    content = pack_cell(document)
    with opened_folder(path.parent) as folder:
        handle = open_file(path.name, os.O_WRONLY, dir_fd=folder)
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
        """Read the cell at `path`; `parse` raises ValueError for a document that makes no sense."""
        self._path, self._parse = path, parse
        self._last: tuple[bytes, Said | None] = (b"", None)
        self._unusable: tuple[bytes, str | None] = (b"", None)

    @property
    def last(self) -> Said | None:
        """What it said when it was last read."""
        return self._last[1]

    def read(self) -> Said | None:
        """Return what it says; None if it is not intact, however often one looks. Any thread may.

        Raises:
            ValueError: It is intact and makes no sense.
            OSError: It cannot be read; Refused if it is not a regular file.

        """
        content = b""
        for look in range(_LOOKS):
            content = cell_content(self._path)
            known, said = self._last
            if content == known:
                return said
            if self._is_unusable(content):
                return None
            document = unpack_cell(content)
            if document is not None:
                try:
                    said = self._parse(document)
                except ValueError as error:
                    self._unusable = (content, str(error))
                    raise
                self._last = (content, said)
                return said
            if look + 1 < _LOOKS:
                time.sleep(_BETWEEN_LOOKS)
        self._unusable = (content, None)  # not in the midst of a write: the same bytes will not become better
        return None

    def _is_unusable(self, content: bytes) -> bool:
        known, why = self._unusable
        if content != known or not known:
            return False
        if why is not None:
            raise ValueError(why)
        return True


def cell_content(path: Path) -> bytes:
    """Read the bytes of a cell, intact or not."""
    handle = open_file(path)
    try:
        return os.pread(handle, CELL_BYTES + 1, 0)
    finally:
        os.close(handle)
