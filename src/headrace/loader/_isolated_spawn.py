# SPDX-License-Identifier: Apache-2.0
"""How the process of `isolate=True` is started, and what is said of its death."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

from headrace.errors import LoaderError
from headrace.loader._isolated_channel import Channel

CHILD = "headrace.loader._isolated_child"

PATIENCE_SECONDS = 0.5
"""How long a process that should end is waited for."""


def start() -> tuple[subprocess.Popen[bytes], Channel]:
    """Start the process; it waits at the other end of the channel to be told what to do."""
    if not sys.executable:
        raise LoaderError("isolate=True starts Python, and this one does not know where it is: set sys.executable")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    command = [sys.executable, "-P", "-m", CHILD, str(theirs.fileno())]
    # What can be imported here can be imported there, and from the same places.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)  # noqa: PTH100 - '' is where we are
    # A signal mask outlives exec: Ctrl-C must not hit the process while it starts, before it ignores it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        popen = subprocess.Popen(  # noqa: S603 - our own module
            command,
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    except OSError as error:
        ours.close()
        raise LoaderError(f"isolate=True cannot start {sys.executable}: {error}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
    return popen, Channel(ours)


def obituary(popen: subprocess.Popen[bytes]) -> str:
    """Say what became of a process that has hung up."""
    name = f"the loader's own process ({popen.pid})"
    try:
        code = popen.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{name} does not answer any more. Iterate again to start another"
    if code >= 0:
        return f"{name} ended with exit code {code}; it may have said why on stderr. Iterate again to start another"
    try:
        by = signal.Signals(-code).name
    except ValueError:
        by = f"signal {-code}"
    hint = "; the system does so when memory runs out" if by == "SIGKILL" else ""
    return f"{name} was ended by {by}{hint}. Iterate again to start another"
