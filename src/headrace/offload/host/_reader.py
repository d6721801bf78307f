# SPDX-License-Identifier: Apache-2.0
"""A thread that reads prepared batches before their turn comes, so that taking one costs the trainer nothing.

It is the only one that speaks to the exchange while an epoch is under way. Two batches are read ahead: one is there
when the trainer asks, the other is being read while the trainer works. A loader that prefetches one has one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

from headrace.errors import BadPreparedBatch
from headrace.loader.supply import Samples, Stack, StopSign
from headrace.offload._accounting import resident_bytes
from headrace.offload.exchange import BatchName, Heartbeat, Stretch
from headrace.offload.exchange._contents import BatchShape, BatchShapes
from headrace.offload.exchange._names import BEAT_SECONDS, SILENT_SECONDS
from headrace.offload.host._absent import Exchange

Found: TypeAlias = Literal["ready", "bad", "pending"]

DEPTH = 2
# How often the offload worker is looked at: as often as it gives a sign of life, and more often while none has come.
# What runs so seldom is in no cache, and a look costs the host 0.15 ms: the exchange's own thread looks with each beat,
# and its last read is used here.
_LOOK_SECONDS, _WAIT_SECONDS = BEAT_SECONDS, 0.02
_MEMORY_SECONDS = 2.0
# An absent batch is looked for when most of its time has gone by since the last one came, and then some ten times in
# the time that one takes: on a host whose cores are all at work, each look costs a tenth of a millisecond.
_EXPECTED = 0.9
_LEAST_POLL, _MOST_POLL = 0.002, 0.05
# Of the batches that the offload worker may have ahead, what part may have been read before it hears of it.
_UNSAID = 0.25


_log = logging.getLogger("headrace.loader")


class _Unexpected(Exception):
    """A prepared batch is intact, and not what the host would have made."""


class PreparedBatches:
    """What the offload worker has of one epoch: shared by the reading thread and the one that supplies the trainer.

    Batches from `top` on are read, bad, or made by the host. Only the reading thread speaks to the exchange.
    """

    def __init__(
        self,
        exchange: Exchange,
        last: BatchName,
        *,
        shapes: BatchShapes,
        samples: Callable[[int], Samples],
        depth: int = DEPTH,
    ) -> None:
        """`last` names the last batch of the stretch; `samples` gives those of each of them, to the reading thread."""
        self._exchange, self._last, self._shapes, self._samples, self._depth = exchange, last, shapes, samples, depth
        self._expected: tuple[int, Samples, BatchShape | None] | None = None
        self._failed: str | None = None
        self._changed = threading.Condition()
        self._ready: dict[int, tuple[Samples, list[Stack]]] = {}
        self._bad: dict[int, str] = {}
        self._left: set[int] = set()
        self._top = self._bottom = last.number + 1
        self._next: Stretch | None = None
        self._asked = True
        self._unsaid = 0
        self._ended = False
        self._seen = self._came = self._told = time.monotonic()
        self._due = self._weighed = 0.0
        self.beat: Heartbeat | None = None
        self.silent_seconds = 0.0
        self.batch_bytes = 0
        self.read_seconds: deque[float] = deque(maxlen=16)
        self.read_cpu: deque[float] = deque(maxlen=16)
        """Of the last few batches, by the clock and by this process' CPU."""
        self.memory: list[float] = [0.0, 0.0, 0.0]
        """Of this process: samples, their sum in bytes, the largest."""

    # For the one who supplies the trainer.

    def want(self, bottom: int, following: Stretch | None) -> None:
        """Ask for all batches from the top down to `bottom`, and then for those of the next epoch."""
        with self._changed:
            if (bottom, following) != (self._bottom, self._next):
                self._bottom, self._next = bottom, following
                self._ask()

    def skip(self, number: int) -> None:
        """Leave a batch, and all above it, to the host."""
        with self._changed:
            for gone in [at for at in self._ready if at >= number]:
                del self._ready[gone]
            if number < self._top:
                self._top = number
                self._ask()
            self._changed.notify_all()

    def leave(self, number: int) -> None:
        """Leave one batch to the host; those above it are still wanted."""
        with self._changed:
            self._left.add(number)
            self._pass_left()
            self._ask()

    def end(self) -> None:
        """Let the reading thread wait for nothing any more: it should stop now, and not in a while."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _ask(self) -> None:
        """Have the offload worker told at once: it would make what is not wanted any more."""
        self._asked = True
        self._changed.notify_all()

    def _pass_left(self) -> None:
        while self._top - 1 in self._left:
            self._top -= 1

    def has(self, number: int) -> bool:
        return number in self._ready

    def settled(self, tail: int) -> int:
        """How many batches, from `tail` - 1 down, need not be waited for: they are read, or found to be bad."""
        count = 0
        while (number := tail - 1 - count) in self._ready or number in self._bad:
            count += 1
        return count

    @property
    def count(self) -> int:
        """Batches that are read and wait."""
        return len(self._ready)

    @property
    def published(self) -> int:
        """Batches that the offload worker has ready, read or unread."""
        beat, last = self.beat, self._last
        marks = () if beat is None else beat.marks
        mark = next((mark[3] for mark in marks if mark[:3] == (last.epoch, last.start, last.stop)), None)
        return self.count + (0 if mark is None else max(0, self._top - mark))

    def find(self, number: int, timeout: float) -> Found:
        """Wait for a batch to be read, or found to be bad."""
        with self._changed:
            if number not in self._ready and number not in self._bad:
                self._changed.wait(timeout)
            return "ready" if number in self._ready else "bad" if number in self._bad else "pending"

    def samples(self, number: int) -> Samples | None:
        """Which samples a batch has, if it is read; else nobody has worked that out yet."""
        found = self._ready.get(number)
        return None if found is None else found[0]

    def take(self, number: int) -> list[Stack]:
        with self._changed:
            _, stacks = self._ready.pop(number)
            self._changed.notify_all()
            return stacks

    @property
    def lost(self) -> str | None:
        """Why no batch is to be expected at present, if none is."""
        if self._failed is not None:
            return self._failed
        beat = self.beat
        if beat is None:
            return "no offload worker has come"
        if beat.state in ("refused", "ended"):
            return (
                f"the offload worker has {beat.state}: {beat.reason}" if beat.reason else "the offload worker has ended"
            )
        if self.silent_seconds > SILENT_SECONDS:
            return f"the offload worker has given no sign of life for {self.silent_seconds:.1f} s"
        return None

    # For the thread.

    def look(self) -> None:
        """See how the offload worker is doing."""
        self.beat = self._exchange.heartbeat(_WAIT_SECONDS if self.beat is None else _LOOK_SECONDS)
        self.silent_seconds = self._exchange.silent_seconds
        self._seen = time.monotonic()
        if self._seen > self._weighed + _MEMORY_SECONDS:
            self._weighed, resident = self._seen, resident_bytes()
            self.memory = [self.memory[0] + 1, self.memory[1] + resident, max(self.memory[2], resident)]

    def step(self) -> None:
        """Read one batch, or wait a little."""
        if time.monotonic() - self._seen > (_WAIT_SECONDS if self.beat is None else _LOOK_SECONDS):
            self.look()
        number = self._top - 1
        if self._has_enough:
            with self._changed:
                if self._has_enough and not self._ended:
                    self._changed.wait(_LOOK_SECONDS)
            return
        if (early := self._due - time.monotonic()) > 0:
            with self._changed:
                if not self._ended:
                    self._changed.wait(early)
            return
        try:
            self._read(number)
        except (BadPreparedBatch, _Unexpected) as error:
            self._settle(number, None, str(error))

    def _read(self, number: int) -> None:
        """Read a batch if it is there. BadPreparedBatch or _Unexpected if the host has to make it."""
        samples, shape = self._expect(number)
        if shape is None:
            raise _Unexpected("a sample of it cannot be transformed")
        prepared = self._exchange.read(self._last._replace(number=number), shape.limits)
        if prepared is None:
            self._due = self._next_look()
            return
        self._came = time.monotonic()
        try:
            stacks = shape.stacked(prepared.arrays)
        except ValueError as error:
            raise _Unexpected(f"the prepared batch is not the one that was asked for: {error}") from None
        self.read_seconds.append(prepared.seconds)
        self.read_cpu.append(prepared.cpu_seconds)
        self.batch_bytes = prepared.n_bytes
        self._settle(number, (samples, stacks), "")

    def _expect(self, number: int) -> tuple[Samples, BatchShape | None]:
        """Work out, once for each batch, which samples it has and what they look like."""
        if self._expected is None or self._expected[0] != number:
            samples = self._samples(number)
            self._expected = (number, samples, self._shapes.of(samples[0]))
        return self._expected[1:]

    def fail(self, error: Exception) -> None:
        """Expect nothing more in this epoch: the reading thread has met an error that nobody foresaw."""
        self._failed = f"prepared batches cannot be read: {type(error).__name__}: {error}"
        _log.warning("offload: %s; the host makes all batches of this epoch", self._failed)
        with self._changed:
            self._changed.notify_all()

    @property
    def _has_enough(self) -> bool:
        return self.count >= self._depth or self._top - 1 < self._bottom

    def _settle(self, number: int, found: tuple[Samples, list[Stack]] | None, why: str) -> None:
        with self._changed:
            if number < self._top:  # else the host has it by now
                self._top = number
                self._unsaid += 1
                if found is None:
                    level = logging.INFO if self._bad else logging.WARNING  # the first of an epoch stands for all
                    self._bad[number] = why
                    _log.log(level, "batch %d of epoch %d is made by the host: %s", number, self._last.epoch, why)
                else:
                    self._ready[number] = found
                self._pass_left()
            self._changed.notify_all()

    def tell(self, *, last: bool = False) -> None:
        """Order what the offload worker should have in its hands, if it changed: of this epoch first, then of the next.

        That batches were read it hears of in a beat or two, unless it may soon have no room for more. The last time
        what was wanted of this epoch is not wanted any more; the next one may begin soon.
        """
        now = time.monotonic()
        with self._changed:
            soon = self._asked or last or (self._unsaid > 0 and self._unsaid >= self._most_unsaid())
            if not soon and (not self._unsaid or now - self._told < BEAT_SECONDS):
                return
            wanted = [self._next] if last else [*self._own_stretches(), self._next]
            self._asked, self._unsaid, self._told = False, 0, now
        self._exchange.order([each for each in wanted if each is not None and each.top > each.bottom], soon=soon)

    def _most_unsaid(self) -> float:
        return _UNSAID * self.beat.ahead_bytes / self.batch_bytes if self.beat is not None and self.batch_bytes else 0.0

    def _own_stretches(self) -> list[Stretch]:
        """Of this epoch, from the top down; what the host makes divides them."""
        names, tops = (self._last.epoch, self._last.start, self._last.stop), [self._top]
        bottoms = sorted((number + 1 for number in self._left if self._bottom <= number < self._top), reverse=True)
        tops += [bottom - 1 for bottom in bottoms]
        return [Stretch(*names, bottom, top) for bottom, top in zip([*bottoms, self._bottom], tops, strict=True)]

    def _next_look(self) -> float:
        """When to look again for a batch that is not there yet."""
        now = time.monotonic()
        a_batch = None if self.beat is None else self.beat.seconds_a_batch
        if a_batch is None:
            return now + _MOST_POLL
        soon = now + min(_MOST_POLL, max(_LEAST_POLL, a_batch / 10))
        return max(soon, min(self._came + _EXPECTED * a_batch, now + BEAT_SECONDS))


class ReadingThread:
    """Runs `PreparedBatches` until it is stopped; then only the next epoch's batches are still wanted."""

    def __init__(self, near: PreparedBatches) -> None:
        self._near, self._stop = near, StopSign()
        self._thread = threading.Thread(target=_work, args=(near, self._stop), name="headrace-offload", daemon=True)

    def start(self) -> None:
        """Begin once something is requested: an empty request would let the offload worker remove its batches."""
        self._thread.start()

    def stop(self) -> None:
        """Let it end, without waiting for it."""
        self._stop.set()

    def join(self) -> None:
        self._stop.set()
        self._near.end()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _work(near: PreparedBatches, stop: StopSign) -> None:
    while not stop.is_set() and threading.main_thread().is_alive():
        try:
            near.tell()
            near.step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the trainer must not wait for this thread
            near.fail(error)
            break
    if threading.main_thread().is_alive():
        near.tell(last=True)
