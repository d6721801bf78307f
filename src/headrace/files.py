# SPDX-License-Identifier: Apache-2.0
"""Read regular files safely and write files atomically.

A path from a dataset or a command line may name a FIFO, a device or a socket. Opening a FIFO blocks until it has a
writer, and reading a device may never end. Everything that opens such a path for reading calls `open_file`.

A file is written under a temporary name in the same folder and then renamed, so readers see the old content or the new
content and never a part of it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from headrace import system

TEMPORARY_SUFFIX = ".tmp"
"""Temporary files are named `.<name>.<token>.tmp`."""

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_KINDS = (
    (stat.S_ISDIR, errno.EISDIR, "a folder"),
    (stat.S_ISFIFO, errno.EINVAL, "a FIFO"),
    (stat.S_ISSOCK, errno.EINVAL, "a socket"),
    (stat.S_ISCHR, errno.EINVAL, "a device"),
    (stat.S_ISBLK, errno.EINVAL, "a device"),
)


def open_file(path: str | PathLike[str]) -> int:
    """Open a regular file for reading and return its descriptor. Never blocks.

    Raises:
        OSError: The file cannot be opened, or it is a folder, FIFO, socket or device.

    """
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device that does not exist
            raise OSError(errno.EINVAL, "must be a regular file; it is a socket or device", os.fspath(path)) from None
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    code, kind = next(((code, kind) for test, code, kind in _KINDS if test(mode)), (errno.EINVAL, "something else"))
    raise OSError(code, f"must be a regular file; it is {kind}", os.fspath(path))


def read_file(path: str | PathLike[str], max_bytes: int | None = None) -> bytes:
    """Return the contents of a regular file.

    Raises:
        OSError: As `open_file`, or the file has more than `max_bytes`.

    """
    handle = open_file(path)
    try:
        n_bytes = os.fstat(handle).st_size
        if max_bytes is not None and n_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"must have at most {max_bytes} bytes; it has {n_bytes}", os.fspath(path))
        content = bytearray(n_bytes)
        got = read_at(handle, 0, content)
    finally:
        os.close(handle)
    return bytes(content) if got == n_bytes else bytes(content[:got])


def read_at(handle: int, offset: int, memory: Any) -> int:
    """Fill a writable buffer from an offset of a file and return the number of bytes read: fewer at its end.

    Maps nothing: a truncated file gives a short count and a bad sector an OSError. With a mapped file both would kill
    the process with SIGBUS.
    """
    wanted = memoryview(memory).cast("B")
    done = 0
    while done < len(wanted):
        got = system.read_into(handle, wanted[done:], offset + done)
        if got == 0:
            break
        done += got
    return done


def publish(temporary: Path, path: Path) -> None:
    """Sync a finished temporary file, rename it to its final name and sync the folder."""
    with temporary.open("rb" if os.name == "posix" else "rb+") as stream:  # Windows syncs what may be written
        os.fsync(stream.fileno())
    temporary.replace(path)
    system.sync_folder(path.parent)


@contextmanager
def atomic_path(path: Path, token: str) -> Iterator[Path]:
    """Yield a temporary path to write to. It is published if the block succeeds and removed if it raises."""
    temporary = path.with_name(f".{path.name}.{token}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes, *, overwrite: bool = True) -> None:
    """Write a file atomically, without syncing it to the disk.

    Raises:
        FileExistsError: The file exists and `overwrite` is false.

    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident():x}{TEMPORARY_SUFFIX}")
    try:
        temporary.unlink(missing_ok=True)  # left by a process that was killed
        with temporary.open("xb") as stream:  # never follows a link
            stream.write(content)
        if not overwrite and path.exists():
            raise FileExistsError(f"{path} exists already; use --force to replace it")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
