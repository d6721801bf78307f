# SPDX-License-Identifier: Apache-2.0
"""A thread that reads prepared batches before they are needed, so that the trainer does not wait for reads.

It is the only thread that uses the exchange during an epoch. Two batches are read ahead: one is ready when the trainer
asks, the other is read while the trainer works. A loader that prefetches only one batch reads one ahead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

from headrace.errors import BadPreparedBatch
from headrace.loader.supply import Samples, Stack
from headrace.offload.exchange import BatchName, Heartbeat, HostExchange, Stretch
from headrace.offload.exchange._batch_file import BatchShape, BatchShapes
from headrace.offload.exchange._liveness import BEAT_SECONDS, SILENT_SECONDS

ReadState: TypeAlias = Literal["ready", "bad", "pending"]

READ_AHEAD = 2
# How old the offload worker's heartbeat may be. The exchange's thread reads it with each beat, and that value is used
# here, because a read costs the host 0.15 ms. Until there is a worker, it is read more often.
_BEAT_AGE_SECONDS, _NO_WORKER_SECONDS = BEAT_SECONDS, 0.02
# A batch that is not there is looked for after 0.9 of the time that a batch takes, then ten times per batch: each look
# costs 0.1 ms on a host whose cores are all busy.
_EXPECTED_SHARE = 0.9
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.002, 0.05
# How many batches may be read before the offload worker is informed, as a share of those that it may have ahead.
_UNREPORTED_SHARE = 0.25

_log = logging.getLogger("headrace.loader")


class _WrongBatch(Exception):
    """A prepared batch is intact, but not what the host would have made."""


class PreparedBatches:
    """The prepared batches of one epoch, shared by the reading thread and the thread that supplies the trainer.

    Batches from `_top` on are read, bad, or made by the host.
    """

    def __init__(
        self,
        exchange: HostExchange | None,
        last: BatchName,
        *,
        shapes: BatchShapes,
        samples: Callable[[int], Samples],
        read_ahead: int = READ_AHEAD,
        sample_memory: Callable[[], None] = lambda: None,
    ) -> None:
        """Without an exchange there are none.

        Args:
            exchange: None if the exchange folder cannot be used.
            last: The last batch of the stretch.
            shapes: Computes what batches must contain.
            samples: Returns the samples of a batch. Called by the reading thread.
            read_ahead: How many batches are read ahead.
            sample_memory: Called at intervals, to measure the memory of this process.

        """
        self._exchange, self._last, self._shapes, self._samples = exchange, last, shapes, samples
        self._read_ahead, self._sample_memory = read_ahead, sample_memory
        self._expected: tuple[int, Samples, BatchShape | None] | None = None
        self._failed: str | None = None
        self._changed = threading.Condition()
        self._ready: dict[int, tuple[Samples, list[Stack]]] = {}
        self._bad: set[int] = set()
        self._skipped: set[int] = set()
        self._top = self._bottom = last.number + 1
        self._next: Stretch | None = None
        self._must_request = True
        self._unreported = 0
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="headrace-offload", daemon=True)
        self._updated = self._last_read = self._requested = time.monotonic()
        self._read_at = 0.0
        self.beat: Heartbeat | None = None
        self.silent_seconds = 0.0
        self.batch_bytes = 0
        self.read_seconds: deque[float] = deque(maxlen=16)
        self.read_cpu: deque[float] = deque(maxlen=16)
        """Of the last batches: elapsed time, and CPU time of the reading thread."""

    # For the thread that supplies the trainer.

    def want(self, bottom: int, following: Stretch | None) -> None:
        """Request all batches from the top down to `bottom`, and then those of the next epoch."""
        with self._changed:
            if (bottom, following) != (self._bottom, self._next):
                self._bottom, self._next = bottom, following
                self._request_soon()

    def skip_from(self, number: int) -> None:
        """Leave a batch, and all above it, to the host."""
        with self._changed:
            for skipped in [at for at in self._ready if at >= number]:
                del self._ready[skipped]
            if number < self._top:
                self._top = number
                self._request_soon()
            self._changed.notify_all()

    def skip(self, number: int) -> None:
        """Leave one batch to the host; those above it are still wanted."""
        with self._changed:
            self._skipped.add(number)
            self._pass_skipped()
            self._request_soon()

    def start(self) -> None:
        """Start to read, when the first request is known: the offload worker would remove its batches at an empty one.

        After the end, only batches of the next epoch are still requested.
        """
        self._thread.start()

    def stop(self) -> None:
        """Let the reading thread end, without waiting for it. Takes no lock, so finalizers may call it."""
        self._ended = True

    def join(self) -> None:
        """End the reading thread and wait for it."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _request_soon(self) -> None:
        """Write the request at once: otherwise the offload worker makes batches that are not wanted any more."""
        self._must_request = True
        self._changed.notify_all()

    def _pass_skipped(self) -> None:
        while self._top - 1 in self._skipped:
            self._top -= 1

    def has(self, number: int) -> bool:
        return number in self._ready

    def settled(self, tail: int) -> int:
        """Return how many batches, from `tail` - 1 down, are read or known to be bad."""
        count = 0
        while (number := tail - 1 - count) in self._ready or number in self._bad:
            count += 1
        return count

    @property
    def published(self) -> int:
        """How many batches the offload worker has ready, read or unread."""
        beat, last = self.beat, self._last
        marks = () if beat is None else beat.marks
        mark = next((mark[3] for mark in marks if mark[:3] == (last.epoch, last.start, last.stop)), None)
        return len(self._ready) + (0 if mark is None else max(0, self._top - mark))

    def wait(self, number: int, timeout: float) -> ReadState:
        """Wait until a batch is read or known to be bad."""
        with self._changed:
            if number not in self._ready and number not in self._bad:
                self._changed.wait(timeout)
            return "ready" if number in self._ready else "bad" if number in self._bad else "pending"

    def samples(self, number: int) -> Samples | None:
        """Return the samples of a batch, if it is read."""
        found = self._ready.get(number)
        return None if found is None else found[0]

    def take(self, number: int) -> list[Stack]:
        with self._changed:
            _, stacks = self._ready.pop(number)
            self._changed.notify_all()
            return stacks

    @property
    def lost(self) -> str | None:
        """Why no batch can be expected now, if so."""
        if self._failed is not None:
            return self._failed
        beat = self.beat
        if beat is None:
            return "there is no offload worker"
        if beat.state in ("refused", "ended"):
            return (
                f"the offload worker has {beat.state}: {beat.reason}" if beat.reason else "the offload worker has ended"
            )
        if self.silent_seconds > SILENT_SECONDS:
            return f"the offload worker has sent no heartbeat for {self.silent_seconds:.1f} s"
        return None

    # For the reading thread.

    def _run(self) -> None:
        while not self._ended and threading.main_thread().is_alive():
            try:
                self.request()
                self.step()
            except Exception as error:  # noqa: BLE001 - the trainer must not wait for this thread, whatever happens
                self._fail(error)
                break
        if threading.main_thread().is_alive():
            self.request(last=True)

    def update(self) -> None:
        """Read the offload worker's heartbeat."""
        if self._exchange is not None:
            self.beat = self._exchange.heartbeat(self._max_beat_age)
            self.silent_seconds = self._exchange.silent_seconds
        self._updated = time.monotonic()
        self._sample_memory()

    @property
    def _max_beat_age(self) -> float:
        return _NO_WORKER_SECONDS if self.beat is None else _BEAT_AGE_SECONDS

    def step(self) -> None:
        """Read one batch, or wait a little."""
        if time.monotonic() - self._updated > self._max_beat_age:
            self.update()
        with self._changed:
            pause = _BEAT_AGE_SECONDS if self._has_enough else self._read_at - time.monotonic()
            if pause > 0:
                if not self._ended:
                    self._changed.wait(pause)
                return
        number = self._top - 1
        try:
            self._read(number)
        except (BadPreparedBatch, _WrongBatch) as error:
            self._settle(number, None, str(error))

    def _read(self, number: int) -> None:
        """Read a batch if it is there. BadPreparedBatch or _WrongBatch if the host has to make it."""
        if self._expected is None or self._expected[0] != number:
            samples = self._samples(number)
            self._expected = (number, samples, self._shapes.of(samples[0]))
        _, samples, shape = self._expected
        if shape is None:
            raise _WrongBatch("one of its samples cannot be transformed")
        name = self._last._replace(number=number)
        prepared = None if self._exchange is None else self._exchange.read(name, shape.limits)
        if prepared is None:
            self._read_at = self._next_read()
            return
        self._last_read = time.monotonic()
        try:
            stacks = shape.stacked(prepared.arrays)
        except ValueError as error:
            raise _WrongBatch(f"the prepared batch is not the one that was requested: {error}") from None
        self.read_seconds.append(prepared.seconds)
        self.read_cpu.append(prepared.cpu_seconds)
        self.batch_bytes = prepared.n_bytes
        self._settle(number, (samples, stacks), "")

    def _fail(self, error: Exception) -> None:
        """Expect nothing more in this epoch, after an unexpected error of the reading thread."""
        self._failed = f"prepared batches cannot be read: {type(error).__name__}: {error}"
        _log.warning("offload: %s; the host makes all batches of this epoch", self._failed)
        with self._changed:
            self._changed.notify_all()

    @property
    def _has_enough(self) -> bool:
        return len(self._ready) >= self._read_ahead or self._top - 1 < self._bottom

    def _settle(self, number: int, found: tuple[Samples, list[Stack]] | None, why: str) -> None:
        with self._changed:
            if number < self._top:  # else the host has made it meanwhile
                self._top = number
                self._unreported += 1
                if found is None:
                    level = logging.INFO if self._bad else logging.WARNING  # warn once per epoch
                    self._bad.add(number)
                    _log.log(level, "the host makes batch %d of epoch %d itself: %s", number, self._last.epoch, why)
                else:
                    self._ready[number] = found
                self._pass_skipped()
            self._changed.notify_all()

    def request(self, *, last: bool = False) -> None:
        """Request what the offload worker should make, if it changed: of this epoch first, then of the next.

        The worker is informed about batches that were read within a beat or two, or at once if it may soon have no room
        for more. The `last` request drops this epoch.
        """
        now = time.monotonic()
        with self._changed:
            soon = self._must_request or last or (self._unreported > 0 and self._unreported >= self._max_unreported())
            if not soon and (not self._unreported or now - self._requested < BEAT_SECONDS):
                return
            wanted = [self._next] if last else [*self._own_stretches(), self._next]
            self._must_request, self._unreported, self._requested = False, 0, now
        if self._exchange is not None:
            stretches = [each for each in wanted if each is not None and each.top > each.bottom]
            self._exchange.request(stretches, soon=soon)

    def _max_unreported(self) -> float:
        if self.beat is None or not self.batch_bytes:
            return 0.0
        return _UNREPORTED_SHARE * self.beat.ahead_bytes / self.batch_bytes

    def _own_stretches(self) -> list[Stretch]:
        """Return the stretches of this epoch, from the top down, without the batches that the host makes."""
        names, tops = (self._last.epoch, self._last.start, self._last.stop), [self._top]
        bottoms = sorted((number + 1 for number in self._skipped if self._bottom <= number < self._top), reverse=True)
        tops += [bottom - 1 for bottom in bottoms]
        return [Stretch(*names, bottom, top) for bottom, top in zip([*bottoms, self._bottom], tops, strict=True)]

    def _next_read(self) -> float:
        """Return when to look again for a batch that is not there yet."""
        now = time.monotonic()
        seconds = None if self.beat is None else self.beat.seconds_per_batch
        if seconds is None:
            return now + _MAX_POLL_SECONDS
        soon = now + min(_MAX_POLL_SECONDS, max(_MIN_POLL_SECONDS, seconds / 10))
        return max(soon, min(self._last_read + _EXPECTED_SHARE * seconds, now + BEAT_SECONDS))
