# SPDX-License-Identifier: Apache-2.0
"""What a measurement ran on and with: the machine, the libraries, the commit; and how a run is made quiet.

A figure means little without these, so every benchmark writes them beside its results.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parent.parent

# A run that differs from its commit in these is not that commit's; pages and earlier results may differ.
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
    """Keep this process on `cores`; False where the system offers no such thing (macOS)."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, set(cores))
    return True


def start_on(core: int, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program that stays on one core. It inherits that: this process is there, too, for a moment."""
    usable = usable_cores()
    pin([core])
    try:
        return subprocess.Popen(command, **options)  # noqa: S603 - our own commands
    finally:
        pin(usable)


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next allocation; False on another C library.

    By default every large buffer is fresh from the kernel and pays a page fault for each 4 KiB, which can double the
    cost of a decode. Peers that cannot decode into a given buffer would carry that cost alone, and part of our lead
    would belong to the allocator.
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
    """The checked-out commit, with `-dirty` if what is measured differs from it; None outside a git checkout."""
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
