# SPDX-License-Identifier: Apache-2.0
"""What a measurement ran on and with: the machine, the libraries, the commit; and how a process is held to cores."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent

# If one of these differs from the commit, the result is marked `-dirty`; pages and earlier results may differ.
_MEASURED = ("CMakeLists.txt", "pyproject.toml", "cpp", "src", "benchmarks", ":(exclude)benchmarks/results")

# mallopt's parameter numbers, from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def describe() -> dict[str, Any]:
    """The machine: CPU model, usable cores, operating system, Python."""
    return {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "cores": len(usable_cores()),
        "system": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def usable_cores() -> list[int]:
    """The cores that this process may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pin(cores: Iterable[int]) -> bool:
    """Keep this process on `cores`; return False where the system cannot (macOS)."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, set(cores))
    return True


@contextmanager
def held_to(cores: int) -> Iterator[None]:
    """Keep this thread, and the threads and processes that it starts, on the first `cores` cores."""
    usable = usable_cores()
    pin(usable[:cores])
    try:
        yield
    finally:
        pin(usable)


def start_on(core: int, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program that stays on one core; it inherits that from this process."""
    usable = usable_cores()
    pin([core])
    try:
        return subprocess.Popen(command, **options)  # noqa: S603 - our own commands
    finally:
        pin(usable)


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next allocation; return False with another C library.

    By default every large buffer comes from the kernel and costs a page fault per 4 KiB, which can double the cost of
    a decode. Peers that cannot decode into a given buffer would pay that alone, and part of our lead would belong to
    the allocator.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    mallopt.restype = ctypes.c_int
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


def library_versions(names: Iterable[str]) -> dict[str, str | None]:
    """Installed versions of the named distributions; None for those that are absent."""
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def commit() -> str | None:
    """Return the checked-out commit, with `-dirty` if the sources differ from it; None outside a git checkout."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    return f"{head}-dirty" if _git("status", "--porcelain", "--", *_MEASURED) else head


def _git(*arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run([git, "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    return done.stdout.strip() if done.returncode == 0 else None
