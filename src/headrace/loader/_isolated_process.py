# SPDX-License-Identifier: Apache-2.0
"""The trainer's side of `isolate=True`: the conversation with the other process, and the batches that come of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from headrace import errors
from headrace.errors import EngineClosed, HeadraceError, LoaderError
from headrace.loader._isolated_channel import Hangup, Message
from headrace.loader._isolated_memory import Lease, Mapping, get_tree
from headrace.loader._isolated_spawn import PATIENCE_SECONDS, obituary, start
from headrace.loader._pixels import Rows, Stack


class IsolatedBatch:
    """A batch that the other process makes."""

    def __init__(self, process: Process, number: int) -> None:
        self._process, self.number = process, number
        self._lease: Lease | None = None
        self._fields: list[Any] = []
        self._failures: list[tuple[int, int, str, str]] = []
        self._error: Exception | None = None
        self.done = False

    def settle(self, lease: Lease, header: dict[str, Any]) -> None:
        """Take what the other process has made."""
        self._lease, self._fields = lease, header["fields"]
        self._failures = [tuple(failure) for failure in header["failures"]]
        self.done = True

    def fail(self, error: Exception) -> None:
        self._error = error
        self.done = True

    def wait(self, timeout: float) -> bool:
        """Wait without the GIL. Raises LoaderError if the other process has died."""
        return self.done or self._process.wait(self, timeout)

    def take(self) -> list[Stack]:
        """Give the fields' pixels, once."""
        if self._error is not None:
            raise self._error
        if self._lease is None:
            raise LoaderError("the batch is not ready, or was taken before")
        memory = np.asarray(self._lease)
        self._lease = None
        stacks: list[Stack] = get_tree(self._fields, memory)
        return stacks

    def failures(self) -> list[tuple[int, int, str, str]]:
        if self._error is not None:
            raise self._error
        return self._failures

    def __del__(self) -> None:
        if not self.done:
            self._process.let_go(batch=self.number)


class Process:
    """The other process and the conversation with it. Safe to use from many threads; of no use after a fork.

    No thread listens: who waits for a batch receives what comes, for all. What is let go of is told by whoever can
    send at the moment, because arrays may die in the midst of anything.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.stats: dict[str, Any] = {}
        self._owner = os.getpid()
        self._sending, self._receiving = threading.Lock(), threading.RLock()
        self._batches: weakref.WeakValueDictionary[int, IsolatedBatch] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()
        self._slots: dict[int, Mapping] = {}
        self._let_go: deque[tuple[str, int]] = deque()
        self._closed = False
        self._death: Callable[[], Exception] | None = None  # a new one for each who hears of it
        self._popen, self._channel = start()
        with contextlib.suppress(Hangup):  # who waits for a batch hears why
            self._channel.send(order)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def dead(self) -> bool:
        """Whether someone was told that the process has died, or could not do what it was started for."""
        return self._death is not None

    def submit(self, rows: Rows, epoch: int) -> IsolatedBatch:
        self._check()
        if self._popen.poll() is not None:
            raise self._ended()
        number = next(self._numbers)
        batch = self._batches[number] = IsolatedBatch(self, number)
        payload = np.ascontiguousarray(rows, np.int64).tobytes()
        try:
            with self._sending:
                self._channel.send({"op": "submit", "batch": number, "epoch": epoch}, payload)
        except Hangup:
            batch.done = True  # nothing to let go of
            raise self._ended() from None
        self._tell()
        return batch

    def tell(self, order: dict[str, Any]) -> None:
        """Send what needs no answer; a process that has died is told by whoever waits for a batch."""
        with self._sending, contextlib.suppress(Hangup):
            self._channel.send(order)

    def wait(self, batch: IsolatedBatch, timeout: float) -> bool:
        """Receive until a batch is done, or the time is over."""
        deadline = time.monotonic() + timeout
        while not batch.done:
            self._check()
            if not self._receiving.acquire(timeout=max(deadline - time.monotonic(), 0)):
                return batch.done
            try:
                if batch.done:
                    break
                message = self._channel.receive(deadline - time.monotonic())
                if message is None:
                    return False
                self._hear(message)
            except Hangup:
                raise self._ended() from None
            finally:
                self._receiving.release()
        return True

    def _hear(self, message: Message) -> None:
        header = message.header
        match header["op"]:
            case "slot":
                assert message.handle is not None
                try:
                    self._slots[header["slot"]] = Mapping(message.handle, header["bytes"])
                finally:
                    os.close(message.handle)
            case "drop":
                for slot in header["slots"]:
                    del self._slots[slot]
            case "done":
                self.stats = header["stats"]
                slot = header["slot"]
                lease = Lease(self._slots[slot], partial(self.let_go, slot=slot))
                batch = self._batches.get(header["batch"])
                if batch is not None:
                    batch.settle(lease, header)
            case "failed":
                make_error = partial(_error, header["kind"], header["message"])
                if header["batch"] is None:
                    self._death = make_error
                    return
                batch = self._batches.get(header["batch"])
                if batch is not None:
                    batch.fail(make_error())

    def let_go(self, *, slot: int | None = None, batch: int | None = None) -> None:
        """Tell the other process what nobody holds any more; from any thread, at any moment."""
        if self._closed or self._owner != os.getpid():
            return
        self._let_go.append(("slots", slot) if slot is not None else ("batches", int(batch or 0)))
        self._tell()

    def _tell(self) -> None:
        # Who finds the lock taken leaves it to the one who has it, who looks again after giving it back.
        while self._let_go and self._sending.acquire(blocking=False):
            told: dict[str, list[int]] = {"slots": [], "batches": []}
            try:
                while self._let_go:
                    kind, number = self._let_go.popleft()
                    told[kind].append(number)
                self._channel.send({"op": "let go", **told})
            except Hangup:
                return  # who waits for a batch hears of it
            finally:
                self._sending.release()

    def _check(self) -> None:
        if self._owner != os.getpid():
            raise LoaderError("this loader's process belongs to the process that was forked; a child needs its own")
        if self._closed or self.dead:
            raise self._ended()

    def _ended(self) -> Exception:
        """Say why there is nobody on the other side."""
        if self._death is None and self._closed:
            return EngineClosed("the loader was closed")
        if self._death is None:
            self._hear_last_words()
        if self._death is None:
            self._death = partial(LoaderError, obituary(self._popen))
        return self._death()

    def _hear_last_words(self) -> None:
        """Take in what the process said before it ended, which may be why."""
        with self._receiving, contextlib.suppress(Hangup):
            while (message := self._channel.receive(0)) is not None:
                self._hear(message)

    def close(self) -> None:
        """End the process and wait for its end. Any number of times, from any thread."""
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        self._channel.hang_up()
        try:
            self._popen.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        with self._receiving, self._sending:
            self._channel.close()
        self._slots.clear()

    def __del__(self) -> None:
        if "_popen" not in self.__dict__:
            return
        if self._owner == os.getpid():
            self.close()
        else:
            self._popen.returncode = 0  # another's child: there is nothing to wait for, and nothing to warn of


def _error(kind: str, message: str) -> Exception:
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, HeadraceError):
        return found(message)
    if kind == "MemoryError":
        return MemoryError(message)
    return LoaderError(f"in the loader's own process: {kind}: {message}")
