# SPDX-License-Identifier: Apache-2.0
"""Opens the files and folders of an exchange: regular files only, never through a symbolic link, never waiting.

Whoever can write to an exchange can put anything in the place of a file: a symbolic link to a file of the user who
runs the worker, a FIFO whose `open` never returns, a sparse file of a terabyte. So:

* every file is opened by `open_file`, which refuses all but regular files, and does not wait for a FIFO's other end;
* to write, a file must have one name only: a hard link would lead out of the folder as a symbolic link does;
* files are made, changed, renamed and removed relative to a handle of their folder (`opened_folder`), so that a folder
  that is replaced by a link in the meantime does not matter;
* every read is bounded.

The path of the exchange itself is the user's: it may contain symbolic links. RUN and rank-RANK below it may not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.offload.exchange._names import TEMPORARY

FILE_MODE = 0o660
FOLDER_MODE = 0o770
"""Less the umask. Both sides run as one user or share a group; nobody else has to read or write."""

_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
# A handle that only names a folder. Over NFS it needs no round trip of its own, unlike one to list it with.
_NAMING = getattr(os, "O_PATH", os.O_RDONLY)
_LINK = {errno.ELOOP, errno.EMLINK, errno.ENOTDIR}  # EMLINK on FreeBSD; ENOTDIR where O_DIRECTORY is checked first
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Refused(OSError):
    """Something in an exchange is not what its name says: not a regular file, not a folder, or too large."""

    def __init__(self, path: Any, why: str) -> None:
        super().__init__(errno.EPERM, why, os.fspath(path))


def open_file(path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, dir_fd: int | None = None) -> int:
    """Open a regular file and return its handle, for which the caller is responsible.

    Raises:
        Refused: It is a symbolic link, a FIFO, a device, a folder; or it has a second name and is to be written.
        OSError: As `os.open`.

    """
    try:
        handle = os.open(path, flags | _FILE, FILE_MODE, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise Refused(path, "it is a symbolic link; a regular file is expected") from None
        if error.errno == errno.ENXIO:  # a FIFO that nobody reads, or a socket
            raise Refused(path, "it is a FIFO or a socket; a regular file is expected") from None
        raise
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and (status.st_nlink < 2 or not flags & (os.O_WRONLY | os.O_RDWR)):
        return handle
    os.close(handle)
    if stat.S_ISREG(status.st_mode):
        raise Refused(path, f"it has {status.st_nlink} names (hard links); a file with one name is expected")
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
    raise Refused(path, f"it is {kind}; a regular file is expected")


def read_small_file(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Return the content of a file; Refused if it has more than `max_bytes`, of which nothing is read then."""
    handle = open_file(path)
    try:
        n_bytes = os.fstat(handle).st_size
        if n_bytes > max_bytes:
            raise Refused(path, f"it has {n_bytes} bytes; at most {max_bytes} are expected")
        pieces, left = [], max_bytes
        while left and (piece := os.read(handle, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(handle)


@contextlib.contextmanager
def opened_folder(path: str | os.PathLike[str], levels: int = 2, *, listing: bool = False) -> Iterator[int]:
    """Open a folder to use as `dir_fd`; its last `levels` names must be folders, not symbolic links.

    `levels` is 2 for a rank's folder and 1 for a run's. Refused if one of the names leads elsewhere.
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
            raise Refused(name, "it is a symbolic link or a file; a folder is expected") from None
        raise


def replace_file(name: str, content: bytes, token: str, *, dir_fd: int) -> None:
    """Write a file under another name, sync it and give it its name. Nothing is left of it after an error."""
    temporary = f".{name}.{token}{TEMPORARY}"
    remove_file(temporary, dir_fd=dir_fd)  # of an attempt that was killed, or planted by somebody else
    handle = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=dir_fd)
    try:
        try:
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_file(temporary, dir_fd=dir_fd)
        raise


def remove_file(name: str, *, dir_fd: int) -> None:
    """Remove a name, whatever it leads to; one that is not there is fine."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=dir_fd)


def write_all(handle: int, content: Any) -> None:
    """Write all bytes of a buffer, however many of them a call takes."""
    rest = memoryview(content).cast("B")
    while rest:
        rest = rest[os.write(handle, rest) :]


def is_regular(entry: os.DirEntry[str]) -> bool:
    """Whether a listed name is a regular file itself."""
    return entry.is_file(follow_symlinks=False)


def exists(path: Path) -> bool:
    """Whether there is a folder of this name; a link to one is none."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
