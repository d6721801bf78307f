# SPDX-License-Identifier: Apache-2.0
"""Whether the other side is alive: by its process on the same machine, else by how long it has been silent.

Clocks of machines are never compared: a `CellReader` measures by its own clock how long a cell has not changed.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

BEAT_SECONDS = 0.5
"""How often both sides write a heartbeat."""
SILENT_SECONDS = 3.0
"""The host treats an offload worker without a heartbeat for this long as dead or frozen."""
TAKEOVER_SECONDS = 5.0
"""Another offload worker takes a rank over after this long without a heartbeat."""
ABANDONED_SECONDS = 60.0
"""The offload worker removes the files of a host without a heartbeat for this long."""

_PROC = Path("/proc")


class Process(NamedTuple):
    """A process, distinct from a later one with the same number."""

    machine: str  # identifies the boot and the namespace of process numbers; empty if unknown
    number: int
    started: int


UNKNOWN = Process("", 0, 0)


def this_process() -> Process:
    return Process(_this_machine(), os.getpid(), _start_time(os.getpid()) or 0)


@cache
def _this_machine() -> str:
    """Identify this machine since its boot, and the container of this process; "" if that is unknown."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot} {namespace}"


def is_gone(process: Process) -> bool:
    """Whether a process has certainly ended; always False for a process on another machine."""
    if not _is_here(process) or process.number < 1:
        return False
    try:
        os.kill(process.number, 0)  # sends nothing; unlike /proc, it also sees processes of other users
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    started = _start_time(process.number)
    return started is not None and started != process.started


def is_abandoned(host: Process, silent_seconds: float) -> bool:
    """Whether a host is dead. On this machine that is certain; a host on another machine must have been silent."""
    return is_gone(host) if _is_here(host) else silent_seconds > ABANDONED_SECONDS


def _is_here(process: Process) -> bool:
    return process.machine != "" and process.machine == _this_machine()


def _start_time(number: int) -> int | None:
    """Return when a process started, in ticks since boot; 0 for a zombie process, None if unknown."""
    try:
        stat = (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return 0 if stat[0] in "ZX" else int(stat[19])
