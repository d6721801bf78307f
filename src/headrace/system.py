# SPDX-License-Identifier: Apache-2.0
"""What Headrace asks of the operating system, and what it does where a system lacks it.

| | Linux | macOS | Windows |
|---|---|---|---|
| reads at an offset | `preadv` | `preadv` | seek and read, one at a time |
| eviction from the page cache | yes | no | no |
| reads past the page cache | `O_DIRECT` | no | no |
| cores that a process may use | yes | all | all |
| lock of a file | `flock` | `flock` | `locking` |
| sync of a folder | yes | yes | not needed: renames are in the journal |
| peak memory | `getrusage` | `getrusage` | not known |

The core has its own list: `cpp/src/platform/platform.h`. Offload workers are not in this table: they need POSIX.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Collection
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl
    import resource

DIRECT_FLAG: int | None = getattr(os, "O_DIRECT", None)
"""Flag of `os.open` for reads that bypass the page cache; None if the system has none."""

_position = threading.Lock()


def read_into(handle: int, memory: memoryview, offset: int) -> int:
    """Read once into memory from an offset of a file and return the number of bytes: 0 at its end. Thread-safe."""
    if hasattr(os, "preadv"):
        return os.preadv(handle, [memory], offset)
    with _position:  # the file has one position for all threads
        os.lseek(handle, offset, os.SEEK_SET)
        content = os.read(handle, len(memory))
    memory[: len(content)] = content
    return len(content)


def can_evict() -> bool:
    """Return whether files can be evicted from the page cache."""
    return hasattr(os, "posix_fadvise")


def evict(handle: int) -> None:
    """Evict those pages of a file from the page cache that are written and not mapped. See `can_evict`."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def affinity() -> set[int] | None:
    """Return the numbers of the cores that this thread may use; None if the system does not restrict them."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def set_affinity(cores: Collection[int]) -> None:
    """Restrict this thread, and what it starts, to some cores. Call it only where `affinity` is not None."""
    os.sched_setaffinity(0, cores)


def lock_file(handle: int) -> None:
    """Lock a file until its handle is closed.

    Raises:
        BlockingIOError: Another handle has the lock.

    """
    if sys.platform == "win32":
        beyond_end = 1 << 30  # nobody else can read a locked byte
        os.lseek(handle, beyond_end, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(errno.EAGAIN, "the file is locked") from error
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sync_folder(folder: Path) -> None:
    """Make the renames in a folder survive a power failure."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def peak_memory() -> int | None:
    """Return the most bytes of memory that this process has had; None if the system does not report it."""
    if sys.platform == "win32":
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def ticks_per_second() -> int:
    """Return the unit of the CPU times in /proc."""
    return os.sysconf("SC_CLK_TCK")
