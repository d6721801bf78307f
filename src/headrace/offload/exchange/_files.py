# SPDX-License-Identifier: Apache-2.0
"""Safe access to the files, folders and cells of an exchange.

Whoever can write to an exchange can replace a file by a symbolic link to a file of the user who runs the worker, by a
FIFO whose `open` never returns, or by a sparse file of a terabyte. So:

* every file is opened by `open_file`, which refuses all but regular files and does not wait for a FIFO;
* a file to write must have one name only: a hard link would lead out of the folder as a symbolic link does;
* files are created, renamed and removed relative to a handle of their folder (`opened_folder`), so replacing the folder
  by a link in the meantime has no effect;
* every read has a limit.

The path of the exchange itself belongs to the user and may contain symbolic links. RUN and rank-RANK must not be links.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from headrace._core import crc32c
from headrace.offload.exchange._documents import parse_object
from headrace.offload.exchange._names import TEMPORARY

FILE_MODE = 0o660
FOLDER_MODE = 0o770
"""Minus the umask. Both sides run as one user or share a group; nobody else needs access."""

CELL_BYTES = 4096
_CELL_MAGIC = b"headrace "
_CELL_HEAD = len(_CELL_MAGIC) + 8
_CELL_READS = 4
_CELL_RETRY_SECONDS = 0.0005

_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
# A handle that only names a folder. Unlike one for listing, it needs no round trip of its own over NFS.
_NAMING = getattr(os, "O_PATH", os.O_RDONLY)
_LINK = {errno.ELOOP, errno.EMLINK, errno.ENOTDIR}  # EMLINK on FreeBSD; ENOTDIR where O_DIRECTORY is checked first
_NOT_REGULAR = "must be a regular file, not a symbolic link, FIFO, socket, device or folder"
Document = TypeVar("Document")


class Refused(OSError):
    """A name in an exchange is not the regular file or folder that it must be, or the file is too large."""

    def __init__(self, path: Any, why: str) -> None:
        super().__init__(errno.EPERM, why, os.fspath(path))


def open_file(path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, dir_fd: int | None = None) -> int:
    """Open a regular file and return its handle, which the caller must close.

    Raises:
        Refused: It is a symbolic link, a FIFO, a device or a folder; or it has a second name and is opened for writing.
        OSError: As `os.open`.

    """
    try:
        handle = os.open(path, flags | _FILE, FILE_MODE, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):  # ENXIO: a FIFO without a reader, or a socket
            raise Refused(path, _NOT_REGULAR) from None
        raise
    status = os.fstat(handle)
    is_regular = stat.S_ISREG(status.st_mode)
    if is_regular and (status.st_nlink < 2 or not flags & (os.O_WRONLY | os.O_RDWR)):
        return handle
    os.close(handle)
    raise Refused(path, f"must have one name; it has {status.st_nlink} hard links" if is_regular else _NOT_REGULAR)


def read_small_file(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Return the content of a file; Refused, before anything is read, if it has more than `max_bytes`."""
    handle = open_file(path)
    try:
        n_bytes = os.fstat(handle).st_size
        if n_bytes > max_bytes:
            raise Refused(path, f"must have at most {max_bytes} bytes; it has {n_bytes}")
        pieces, left = [], max_bytes
        while left and (piece := os.read(handle, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(handle)


@contextlib.contextmanager
def opened_folder(path: str | os.PathLike[str], levels: int = 2, *, listing: bool = False) -> Iterator[int]:
    """Open a folder for use as `dir_fd`; Refused if one of its last `levels` names is not a folder itself.

    `levels` is 2 for the folder of a rank and 1 for that of a run.
    """
    names: list[str] = []
    first = os.fspath(path)
    for _ in range(levels - 1):
        first, name = os.path.split(first)
        names.insert(0, name)
    handle = _open_folder(first, None, listing=listing and not names)
    try:
        for name in names:
            deeper = _open_folder(name, handle, listing=listing and name is names[-1])
            os.close(handle)
            handle = deeper
        yield handle
    finally:
        os.close(handle)


def _open_folder(name: str, dir_fd: int | None, *, listing: bool) -> int:
    try:
        return os.open(name, _FOLDER | (os.O_RDONLY if listing else _NAMING), dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _LINK:
            raise Refused(name, "must be a folder, not a symbolic link or a file") from None
        raise


def replace_file(name: str, content: bytes, token: str, *, dir_fd: int) -> None:
    """Write a file under a temporary name, sync it and rename it. An error leaves nothing behind."""
    temporary = f".{name}.{token}{TEMPORARY}"
    remove_file(temporary, dir_fd=dir_fd)  # left by an attempt that was killed, or put there by somebody else
    handle = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=dir_fd)
    try:
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_file(temporary, dir_fd=dir_fd)
        raise


def remove_file(name: str, *, dir_fd: int) -> None:
    """Remove a name, if it exists. A link is removed, not what it leads to."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=dir_fd)


def is_folder(path: Path) -> bool:
    """Whether the path is a folder itself, not a link to one."""
    return path.is_dir() and not path.is_symlink()


# Cells: files of 4096 bytes that one side writes in place, again and again, and the other reads (spec/exchange.md §2).


def pack_cell(document: dict[str, Any]) -> bytes:
    """Return the bytes of a cell; ValueError if the document is too large."""
    # Surrogates, which paths can contain, become escapes of JSON.
    text = b" " + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")
    if len(text) >= CELL_BYTES - _CELL_HEAD:
        raise ValueError(f"a cell must have at most {CELL_BYTES - _CELL_HEAD - 1} bytes; got {len(text)}")
    content = text.ljust(CELL_BYTES - _CELL_HEAD - 1) + b"\n"
    return _CELL_MAGIC + b"%08x" % crc32c(content, 0) + content


def unpack_cell(content: bytes) -> dict[str, Any] | None:
    """Return the document of a cell; None if the bytes are not those of an intact cell."""
    rest = content[_CELL_HEAD:]
    if len(content) != CELL_BYTES or content[:_CELL_HEAD] != _CELL_MAGIC + b"%08x" % crc32c(rest, 0):
        return None
    try:
        return parse_object(rest)
    except ValueError:
        return None


def write_cell(path: Path, document: dict[str, Any]) -> bytes:
    """Overwrite an existing cell and return its bytes. This usually works on a full disk too: the block exists."""
    content = pack_cell(document)
    with opened_folder(path.parent) as folder:
        handle = open_file(path.name, os.O_WRONLY, dir_fd=folder)
    try:
        os.pwrite(handle, content, 0)
    finally:
        os.close(handle)  # from now on, whoever opens the file sees the new content, over NFS too
    return content


def read_cell(path: Path) -> dict[str, Any] | None:
    """Return the document of a cell; None if it stays damaged when it is read again."""
    return CellReader(path, dict[str, Any]).read()


def read_cell_bytes(path: Path) -> bytes:
    """Return the bytes of a cell, intact or not."""
    handle = open_file(path)
    try:
        return os.pread(handle, CELL_BYTES + 1, 0)
    finally:
        os.close(handle)


class CellReader(Generic[Document]):
    """Reads a cell repeatedly. An unchanged cell is not parsed again, so that a read costs 10 µs."""

    def __init__(self, path: Path, parse: Callable[[dict[str, Any]], Document]) -> None:
        """`parse` raises ValueError for a document that is not valid."""
        self._path, self._parse = path, parse
        self._read: tuple[bytes, Document | None, str | None] = (b"", None, None)  # and why it is not valid
        self._changed = time.monotonic()
        self.last: Document | None = None
        """The last valid document."""

    @property
    def silent_seconds(self) -> float:
        """How long ago the document last changed, by the clock of this process and as far as it was read."""
        return time.monotonic() - self._changed

    def read(self) -> Document | None:
        """Return the document; None if the cell stays damaged when it is read again. Any thread may call this.

        Raises:
            ValueError: It is intact and not valid.
            OSError: It cannot be read; Refused if it is not a regular file.

        """
        content = b""
        for attempt in range(_CELL_READS):
            if attempt:
                time.sleep(_CELL_RETRY_SECONDS)
            content = read_cell_bytes(self._path)
            known, document, fault = self._read
            if content != known:
                tree = unpack_cell(content)
                if tree is None:
                    continue  # it may be being written
                document = fault = None
                try:
                    document = self.last = self._parse(tree)
                    self._changed = time.monotonic()
                except ValueError as error:
                    fault = str(error)
                self._read = (content, document, fault)
            if fault is not None:
                raise ValueError(fault)
            return document
        self._read = (content, None, None)  # nobody is writing it: the same bytes stay damaged
        return None
