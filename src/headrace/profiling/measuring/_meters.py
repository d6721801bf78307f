# SPDX-License-Identifier: Apache-2.0
"""What a measurement cost: CPU time and peak memory of this process and of those that it started."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(slots=True)
class Cost:
    """Filled in when the block of `metered` ends."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int | None = None
    others: float | None = None
    """Cores that other programs, or other guests of the same host, kept busy meanwhile."""

    def look(self) -> None:
        """Note the memory of processes that may have ended when the block does."""
        now = peak_bytes()
        self.peak_bytes = now if self.peak_bytes is None or now is None else max(self.peak_bytes, now)


@contextmanager
def metered() -> Iterator[Cost]:
    """Measure a block. CPU time counts all threads, and processes while they run or once they were waited for."""
    cost = Cost()
    _reset_peak()
    cpu, machine, begun = cpu_seconds(), _machine_seconds(), time.perf_counter()
    try:
        yield cost
    finally:
        cost.seconds = time.perf_counter() - begun
        cost.cpu_seconds = max(0.0, cpu_seconds() - cpu)
        now = _machine_seconds()
        if machine is not None and now is not None and cost.seconds > 0:
            cost.others = max(0.0, now - machine - cost.cpu_seconds) / cost.seconds
        cost.look()


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


def _machine_seconds() -> float | None:
    """Time that all cores of the machine were busy or taken away, whoever had them."""
    try:
        fields = (_PROC / "stat").read_text().splitlines()[0].split()[1:]
        user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields[:8])
    except (OSError, ValueError, IndexError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


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
