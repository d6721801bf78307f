# SPDX-License-Identifier: Apache-2.0
"""One rank that the offload worker serves: which batch it needs next, what lies ready, how long batches take."""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Collection
from typing import Any

from headrace.offload._untrusted import MALFORMED
from headrace.offload.exchange._batch_file import pack_batch
from headrace.offload.exchange._files import exists
from headrace.offload.exchange._names import BatchName, Stretch
from headrace.offload.exchange._slots import Slots
from headrace.offload.exchange._status import Heartbeat, State
from headrace.offload.exchange._worker import Gone, WorkerRank, is_abandoned
from headrace.offload.worker._makers import Maker

_LOOK_SECONDS = 0.01
_JUDGE_SECONDS = 0.25
_AGAIN_SECONDS = 1.0
_TIMED = 16
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Served:
    """A rank that this offload worker holds. All but `heartbeat`'s figures belong to the worker's main thread."""

    def __init__(self, near: WorkerRank, maker: Maker, token: str) -> None:
        self.near, self.maker = near, maker
        self._slots = Slots(near.folder, near.rank, token)
        self._stretches: tuple[Stretch, ...] = ()
        self._complaint = ""
        self._looked = self._judged = 0.0
        # Of stretches, by all but their top: the mark, and the top that it was found under.
        self._marks: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        self._retry_at = 0.0
        self._since: float | None = None
        self._times: deque[float] = deque(maxlen=_TIMED)
        self._batch_bytes = max(self._slots.held.values(), default=0)
        self.seconds_a_batch: float | None = None
        self.state: State = "waiting"
        self.reason = ""
        self.batches = 0
        self.written_bytes = 0
        self.busy_seconds = 0.0
        self.ahead_bytes = 0
        self._settle()

    @property
    def title(self) -> str:
        """Which rank it is, for people."""
        return f"rank {self.near.rank} of run {self.near.folder.parent.name}"

    @property
    def gave(self) -> str:
        """How much it was given, for people."""
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        return f"gave {batches}, {self.written_bytes / 1e6:.3g} MB"

    @property
    def trouble(self) -> str:
        """What is wrong at present: with the folder, with what the host asks for, or with its cell."""
        return self.reason or self._complaint or self.near.fault or ""

    def refresh(self, ahead_bytes: int) -> None:
        """Look at the host's requests, not too often. Gone if there is no host any more."""
        self.ahead_bytes = ahead_bytes
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if self.near.look():
            self._retry_at = 0.0
            self._settle()

    def is_abandoned(self) -> bool:
        """Whether the host has died without removing its files. Looks at it not too often."""
        if time.monotonic() - self._judged < _JUDGE_SECONDS:
            return False
        self._judged = time.monotonic()
        return is_abandoned(self.near.request.process, self.near.host_silent_seconds)

    def next_name(self, flying: Collection[BatchName]) -> BatchName | None:
        """Give the batch to make next, while `flying` are being made; None if there is none, or no room for it."""
        if time.monotonic() < self._retry_at:
            return None
        name = None
        if self._has_room(flying):
            names = (self._next_of(stretch, flying) for stretch in self._stretches)
            name = next((name for name in names if name is not None), None)
        if name is not None:
            self._since = self._since or time.monotonic()
            self.state = "working"
        elif not flying:
            self._since = None  # what it waits for is the host, which is no time of a batch
            self.state, self.reason = "waiting", ""
        return name

    def _has_room(self, flying: Collection[BatchName]) -> bool:
        if not self._slots.held and not flying:
            return True
        # How large a batch is shows with the first.
        coming = (len(flying) + 1) * self._batch_bytes
        return coming > 0 and self._slots.held_bytes + coming <= self.ahead_bytes

    def _next_of(self, stretch: Stretch, flying: Collection[BatchName]) -> BatchName | None:
        for number in range(self._mark(stretch) - 1, stretch.bottom - 1, -1):
            name = self._name(stretch, number)
            if name not in flying and name not in self._slots.held:
                return name
        return None

    def _name(self, stretch: Stretch, number: int) -> BatchName:
        return BatchName(stretch.epoch, self.near.rank, stretch.start, stretch.stop, number)

    def _mark(self, stretch: Stretch) -> int:
        """The batch from which on, up to the top, all are published."""
        mark, top = self._marks.get(stretch[:4], (0, -1))
        if stretch.top > top or not stretch.bottom <= mark <= stretch.top:
            mark = stretch.top
        while mark > stretch.bottom and self._name(stretch, mark - 1) in self._slots.held:
            mark -= 1
        self._marks[stretch[:4]] = (mark, stretch.top)
        return mark

    def _settle(self) -> None:
        """Let go of what the host does not want any more."""
        self._complaint = ""
        self._stretches = tuple(stretch for stretch in self.near.request.stretches if self._is_real(stretch))
        self._slots.keep_only(self.wants)
        if not self._stretches:
            self._slots.drop_spare()
        known = {stretch[:4] for stretch in self._stretches}
        self._marks = {key: mark for key, mark in self._marks.items() if key in known}
        self._find_marks()

    def _find_marks(self) -> None:
        for stretch in self._stretches:
            self._mark(stretch)

    def wants(self, name: BatchName) -> bool:
        return any(stretch.wants(name) for stretch in self._stretches)

    def _is_real(self, stretch: Stretch) -> bool:
        """Whether there are such batches: a host could ask for 2**48 of them."""
        try:
            there = self.maker.remaining(
                epoch=stretch.epoch, rank=self.near.rank, start=stretch.start, stop=stretch.stop
            )
        except MALFORMED:
            there = 0
        if stretch.top > there:
            self._complaint = f"the host asks for batch {stretch.top - 1} of {there}"
        return stretch.top <= there

    def publish(self, name: BatchName, batch: Any, declined: str | None = None) -> None:
        """Write a batch, unless nobody wants it any more. OSError as a full disk has it; Gone as ever."""
        if self.near.look():
            self._settle()
        if not self.wants(name):
            return
        try:
            content = pack_batch(name, self.near.origin, batch, declined)
        except ValueError as error:
            content = pack_batch(name, self.near.origin, {}, str(error))
        self._slots.write(name, content)
        self.state, self.reason = "working", ""
        self.written_bytes += content.n_bytes
        self.batches += 1
        if declined is None or not self._batch_bytes:
            self._batch_bytes = content.n_bytes
        self._find_marks()
        self._note_time()

    def _note_time(self) -> None:
        now = time.monotonic()
        if self._since is not None:
            self.busy_seconds += now - self._since
            if self.batches > 1:  # the first has the warm-up in it
                self._times.append(now - self._since)
                self.seconds_a_batch = sum(self._times) / len(self._times)
        self._since = now

    def fail(self, error: OSError) -> None:
        """Wait a while before the next try: the folder is full, or cannot be read or written. Gone if it is gone."""
        if not exists(self.near.folder):
            raise Gone(f"{self.near.folder} was removed") from None
        self._slots.drop_spare()
        self.state = "full" if error.errno in _FULL else "trouble"
        self.reason = f"{self.near.folder}: {error.strerror or error}"
        self._retry_at = time.monotonic() + _AGAIN_SECONDS
        self._since = None

    @property
    def held_bytes(self) -> int:
        return self._slots.held_bytes

    def heartbeat(self) -> Heartbeat:
        """Say how this rank stands."""
        marks = [(*key[:3], *mark) for key, mark in self._marks.copy().items()]
        return Heartbeat(
            session="",
            worker="",
            beat=0,
            state=self.state,
            reason=self.trouble,
            marks=tuple(marks),
            batches=self.batches,
            busy_seconds=self.busy_seconds,
            seconds_a_batch=self.seconds_a_batch,
            ahead_bytes=self.ahead_bytes,
            held_bytes=self.held_bytes,
        )
