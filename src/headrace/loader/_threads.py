# SPDX-License-Identifier: Apache-2.0
"""Start threads where Ctrl-C cannot interrupt it.

`Thread.start` waits in Python code until the new thread runs. An interrupt in that moment may leave a lock held, so
that the new thread waits forever, or be replaced by a RuntimeError. Signal handlers run in the main thread only. So one
thread per process, which is kept, starts all others; the main thread waits for it in C.

It also keeps the `Thread` objects for a while: when the last reference to one goes, code of `threading` runs, and
an interrupt in it would be lost.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

_Answer: TypeAlias = "queue.SimpleQueue[BaseException | None]"


def start_thread(target: Callable[..., None], args: tuple[Any, ...], name: str) -> threading.Thread:
    """Start a thread. If this is interrupted, the thread may run: what it works on must tell it to end."""
    thread = threading.Thread(target=target, args=args, name=name)
    if threading.current_thread() is not threading.main_thread():
        thread.start()
        return thread
    answer: _Answer = queue.SimpleQueue()
    _requests().put((thread, answer))
    error = answer.get()
    if error is not None:
        raise error
    return thread


class _Starter:
    def __init__(self) -> None:
        self.process = os.getpid()  # threads do not survive a fork
        self.requests: queue.SimpleQueue[tuple[threading.Thread, _Answer]] = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(self.requests,), name="thread-starter", daemon=True).start()


_starter: _Starter | None = None


def _requests() -> queue.SimpleQueue[tuple[threading.Thread, _Answer]]:
    global _starter  # noqa: PLW0603 - one per process
    if _starter is None or _starter.process != os.getpid():
        _starter = _Starter()
    return _starter.requests


def _serve(requests: queue.SimpleQueue[tuple[threading.Thread, _Answer]]) -> None:
    kept: list[threading.Thread] = []
    while True:
        thread, answer = requests.get()
        kept = [each for each in kept if each.is_alive()]
        kept.append(thread)
        try:
            thread.start()
        except BaseException as error:  # noqa: BLE001 - raised where the thread was asked for
            answer.put(error)
        else:
            answer.put(None)
        del thread, answer
