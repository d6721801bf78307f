# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory: of this process, of the processes that it started, and of the machine."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(slots=True)
class ResourceUse:
    """What a block of code used; filled in when the block of `metered` ends."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int | None = None
    other_cores: float | None = None
    """Cores that other programs, or other guests of the same host, kept busy during the block."""

    def sample_memory(self) -> None:
        """Note the memory of processes that may have ended when the block does."""
        now = peak_bytes()
        self.peak_bytes = now if self.peak_bytes is None or now is None else max(self.peak_bytes, now)


@contextmanager
def metered() -> Iterator[ResourceUse]:
    """Measure a block. CPU time counts all threads, and processes while they run or once they were waited for."""
    use = ResourceUse()
    _reset_peak()
    cpu, machine, begun = cpu_seconds(), busy_seconds(), time.perf_counter()
    try:
        yield use
    finally:
        use.seconds = time.perf_counter() - begun
        use.cpu_seconds = max(0.0, cpu_seconds() - cpu)
        now = busy_seconds()
        if machine is not None and now is not None and use.seconds > 0:
            use.other_cores = max(0.0, now - machine - use.cpu_seconds) / use.seconds
        use.sample_memory()


def cpu_seconds() -> float:
    """CPU time so far: of this process, of its children that have ended, and of its descendants that run."""
    spent = os.times()
    return (
        spent.user
        + spent.system
        + spent.children_user
        + spent.children_system
        + sum(_cpu_seconds_of(pid) for pid in descendants())
    )


def busy_seconds(cores: Collection[int] | None = None, stat: Path = _PROC / "stat") -> float | None:
    """Return how long cores have been busy since the system started, for all programs and guests; None if unknown.

    That is all of a core's line but the 4th and 5th figure: idle, and waiting for storage.

    Args:
        cores: Numbers of the cores; None is all of them.
        stat: The kernel's file.

    """
    wanted = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    try:
        lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
        found = [list(map(int, figures[:8])) for name, *figures in lines if name in wanted]
    except (OSError, ValueError):
        return None
    return sum(sum(figures[:3]) + sum(figures[5:]) for figures in found) / os.sysconf("SC_CLK_TCK")


def peak_bytes() -> int | None:
    """The most memory that this process has had since `metered` began, and what its descendants have had."""
    peaks = [_status_bytes(pid, "VmHWM:") for pid in (os.getpid(), *descendants())]
    known = [peak for peak in peaks if peak is not None]
    if known:
        return sum(known)
    try:
        import resource  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def available_memory() -> int | None:
    """Bytes that could be used without swapping: what the kernel says, or less if the container has less."""
    found = _meminfo("MemAvailable:")
    limit = _container_limit()
    if found is None or limit is None:
        return limit if found is None else found
    return min(found, limit)


def cpu_name() -> str | None:
    try:
        for line in (_PROC / "cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return None


def descendants() -> list[int]:
    """Processes that this one started, and theirs; none where there is no /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    try:
        entries = [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit()]
    except OSError:
        return []
    for pid in entries:
        fields = _stat(pid)
        if fields is not None:
            children[int(fields[1])].append(pid)
    found, pending = [], [os.getpid()]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the name before it may hold anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None  # it has just ended
    return text.rpartition(")")[2].split()


def _cpu_seconds_of(pid: int) -> float:
    fields = _stat(pid)
    return 0.0 if fields is None else sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _reset_peak() -> None:
    with suppress(OSError):  # then the peak is that of the whole life of the process
        (_PROC / "self" / "clear_refs").write_text("5")


def _status_bytes(pid: int, name: str) -> int | None:
    try:
        for line in (_PROC / str(pid) / "status").read_text(errors="replace").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _meminfo(name: str) -> int | None:
    try:
        for line in (_PROC / "meminfo").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _container_limit(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What is left of the memory of a control group, where there is one with a limit; the page cache is free to go."""
    try:
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        parts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    cached = sum(int(parts.get(name, 0)) for name in ("active_file", "inactive_file"))
    return max(0, limit - max(0, used - cached))
