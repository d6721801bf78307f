# SPDX-License-Identifier: Apache-2.0
"""Open and read regular files, and nothing else.

A path from a dataset or a command line may name a FIFO, a device or a socket. Opening a FIFO waits for its writer, and
reading a device may never end. Everything that opens such a path for reading calls `open_file`.
"""

from __future__ import annotations

import errno
import os
import stat
from os import PathLike
from typing import Any

__all__ = ["open_file", "read_at", "read_file"]

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_KINDS = (
    (stat.S_ISDIR, errno.EISDIR, "a folder"),
    (stat.S_ISFIFO, errno.EINVAL, "a FIFO"),
    (stat.S_ISSOCK, errno.EINVAL, "a socket"),
    (stat.S_ISCHR, errno.EINVAL, "a device"),
    (stat.S_ISBLK, errno.EINVAL, "a device"),
)


def open_file(path: str | PathLike[str]) -> int:
    """Open a regular file for reading and return its descriptor; never waits.

    Raises:
        OSError: The file cannot be opened, or it is a folder, FIFO, socket or device.

    """
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device that is not there
            raise OSError(errno.EINVAL, "must be a regular file, and is a socket or device", os.fspath(path)) from None
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    code, kind = next(((code, kind) for test, code, kind in _KINDS if test(mode)), (errno.EINVAL, "something else"))
    raise OSError(code, f"must be a regular file, and is {kind}", os.fspath(path))


def read_file(path: str | PathLike[str], max_bytes: int | None = None) -> bytes:
    """Return the contents of a regular file.

    Raises:
        OSError: As `open_file`, or the file has more than `max_bytes`.

    """
    handle = open_file(path)
    try:
        n_bytes = os.fstat(handle).st_size
        if max_bytes is not None and n_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"must have at most {max_bytes} bytes, and has {n_bytes}", os.fspath(path))
        content = bytearray(n_bytes)
        got = read_at(handle, 0, content)
    finally:
        os.close(handle)
    return bytes(content) if got == n_bytes else bytes(content[:got])


def read_at(handle: int, offset: int, memory: Any) -> int:
    """Fill a writable buffer from an offset of a file, and return how many bytes there were: fewer at its end.

    Reads with `pread`: a file that is cut short or a bad sector is a short count or an OSError. A mapped file would end
    the process with SIGBUS.
    """
    wanted = memoryview(memory).cast("B")
    done = 0
    while done < len(wanted):
        got = os.preadv(handle, [wanted[done:]], offset + done)
        if got == 0:
            break
        done += got
    return done
