# SPDX-License-Identifier: Apache-2.0
"""Who a process is, so that another on the same machine can tell whether it still runs. Across machines nobody can."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Process(NamedTuple):
    """A process of a machine, told apart from a later one with the same number."""

    machine: str
    """Of one boot and one namespace of process numbers; empty where that cannot be told."""
    number: int
    started: int


UNKNOWN = Process("", 0, 0)


def new_token() -> str:
    """Name a process or a session as none was named before."""
    return os.urandom(8).hex()


def this_process() -> Process:
    return Process(this_machine(), os.getpid(), _started(os.getpid()) or 0)


@cache
def this_machine() -> str:
    """Name this machine since it was booted, and the container that this process is in."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot} {namespace}"


def is_gone(process: Process) -> bool:
    """Whether a process has certainly ended; one of another machine never has."""
    if not process.machine or process.machine != this_machine() or process.number < 1:
        return False
    try:
        os.kill(process.number, 0)  # asks, and does nothing; unlike /proc it tells of other users' processes too
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    started = _started(process.number)
    return started is not None and started != process.started


def _started(number: int) -> int | None:
    """When a process was started, in ticks since the boot; 0 if it is a corpse, None if that cannot be seen."""
    try:
        fields = (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return 0 if fields[0] in "ZX" else int(fields[19])
