# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of this process and of those that it started, and the other load on the machine."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace import system

_PROC = Path("/proc")
_MAX_OTHER_LOAD = 0.25
"""Share of the measured cores that other programs may use."""
_MIN_NOISE_SECONDS = 0.5
"""The kernel counts CPU time in hundredths of a second: the counts of a shorter measurement are too coarse."""


@dataclass(slots=True)
class ResourceUse:
    """What a block of code used; filled in when the block of `metered` ends."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int | None = None
    other_cores: float | None = None
    """Cores that other programs, or other guests of the same host, kept busy during the block."""

    def sample_memory(self) -> None:
        """Record the memory of processes that may have ended when the block does."""
        now = peak_bytes()
        self.peak_bytes = now if self.peak_bytes is None or now is None else max(self.peak_bytes, now)


@contextmanager
def metered() -> Iterator[ResourceUse]:
    """Measure a block: CPU time of all threads, and of processes while they run or once they were waited for."""
    use = ResourceUse()
    with suppress(OSError):  # without it, the peak is that of the process since it started
        (_PROC / "self" / "clear_refs").write_text("5")
    cpu, machine, started = cpu_seconds(), busy_seconds(), time.perf_counter()
    try:
        yield use
    finally:
        use.seconds = time.perf_counter() - started
        use.cpu_seconds = max(0.0, cpu_seconds() - cpu)
        now = busy_seconds()
        if machine is not None and now is not None and use.seconds > 0:
            use.other_cores = max(0.0, now - machine - use.cpu_seconds) / use.seconds
        use.sample_memory()


class NoiseMonitor:
    """Records the other load on the machine during measurements on `cores` cores."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        # Other programs may use the cores that the measurement does not.
        self._spare = max(0, (os.cpu_count() or cores) - cores)
        self._uses: list[tuple[str, ResourceUse]] = []

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Monitor the machine during a measurement."""
        with metered() as use:
            yield
        self._uses.append((name, use))

    @property
    def disturbed(self) -> tuple[str, ...]:
        """Names of the measurements during which other programs used too many cores."""
        limit = self._spare + _MAX_OTHER_LOAD * self._cores
        return tuple(
            name for name, use in self._uses if use.seconds >= _MIN_NOISE_SECONDS and (use.other_cores or 0.0) > limit
        )


@contextmanager
def held_to(cores: int) -> Iterator[None]:
    """Restrict this thread, and what it starts, to some of its cores, where the system supports it."""
    before = system.affinity()
    if before is None:
        yield
        return
    system.set_affinity(sorted(before)[:cores])
    try:
        yield
    finally:
        system.set_affinity(before)


def cpu_seconds() -> float:
    """Return the CPU time so far of this process, its children that ended, and its descendants that run."""
    spent = os.times()
    running = [sum(map(int, _stat(pid)[11:15])) for pid in descendants()]
    children = spent.children_user + spent.children_system
    return time.process_time() + children + (sum(running) / system.ticks_per_second() if running else 0.0)


def busy_seconds(cores: Collection[int] | None = None, stat: Path = _PROC / "stat") -> float | None:
    """Return how long these cores, or all, have been busy in total since the system started; None if unknown.

    That is their lines of /proc/stat without the 4th and 5th number: idle, and waiting for storage.
    """
    names = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    try:
        lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
        ticks = [list(map(int, numbers[:8])) for name, *numbers in lines if name in names]
    except (OSError, ValueError):
        return None
    return sum(sum(each[:3]) + sum(each[5:]) for each in ticks) / system.ticks_per_second()


def peak_bytes() -> int | None:
    """Return the peak memory of this process since `metered` began, and of its descendants."""
    peaks = [_bytes_in(_PROC / str(pid) / "status", "VmHWM:") for pid in (os.getpid(), *descendants())]
    known = [peak for peak in peaks if peak is not None]
    return sum(known) if known else system.peak_memory()


def available_memory() -> int | None:
    """Return the bytes that can be used without swapping, within the limit of the container."""
    limits = [_bytes_in(_PROC / "meminfo", "MemAvailable:"), _container_limit()]
    return min((limit for limit in limits if limit is not None), default=None)


def cpu_name() -> str | None:
    with suppress(OSError):
        for line in (_PROC / "cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return None


def descendants() -> list[int]:
    """Return the ids of all processes that this one started, directly or not; none where there is no /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    with suppress(OSError):
        for pid in [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit()]:
            if fields := _stat(pid):
                children[int(fields[1])].append(pid)
    found, pending = [], [os.getpid()]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain anything; none if the process ended."""
    with suppress(OSError):
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _bytes_in(path: Path, name: str) -> int | None:
    """Return a size from a file of /proc with lines such as `VmHWM:  1234 kB`."""
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return None


def _container_limit(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory that a control group has left, counting its page cache as free; None without a limit."""
    try:
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        parts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    cached = sum(int(parts.get(name, 0)) for name in ("active_file", "inactive_file"))
    return max(0, limit - max(0, used - cached))
