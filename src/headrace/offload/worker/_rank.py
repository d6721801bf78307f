# SPDX-License-Identifier: Apache-2.0
"""One rank that an offload worker serves: its requests, which batch it needs next, and the batches published for it.

At any time one offload worker holds a rank: the one whose name is in the `near` cell. It checks that before each write.
Two workers that claim a rank at the same moment make the same batches, with the same bits and names, until the next
check; nothing else happens.
"""

from __future__ import annotations

import errno
import io
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.offload.exchange._batch_file import pack_batch
from headrace.offload.exchange._batch_io import PublishedBatches
from headrace.offload.exchange._documents import (
    ABANDONED_SECONDS,
    HOST_CELL,
    MALFORMED,
    RECIPE,
    ROWS,
    TAKEOVER_SECONDS,
    WORKER_CELL,
    BatchName,
    Heartbeat,
    HostRequest,
    Origin,
    Process,
    SilenceTimer,
    State,
    Stretch,
    digest,
    is_gone,
    parse_object,
    this_machine,
    this_process,
)
from headrace.offload.exchange._files import (
    CellReader,
    is_folder,
    read_cell,
    read_cell_bytes,
    read_small_file,
    write_cell,
)
from headrace.offload.worker._makers import BatchMaker

MAX_RECIPE_BYTES = 1 << 20
MAX_ROWS = 1 << 26
_MAX_ROWS_HEADER = 1 << 12
# After a claim, a worker waits this long and checks that the cell still has its name.
_CLAIM_SECONDS = 0.05
_LOOK_SECONDS = 0.01
_ABANDONED_CHECK_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_TIMED_BATCHES = 16
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RankGone(Exception):
    """The rank's folder was removed, taken over by another offload worker, or created again by another host."""


class RankCells:
    """The two cells of a rank, as an offload worker uses them."""

    def __init__(self, folder: Path, rank: int, worker: str, max_rows: int = MAX_ROWS) -> None:
        """Read what the host has published. OSError or ValueError if it is not valid, or not complete yet."""
        self.folder, self.rank, self._worker = folder, rank, worker
        self._process = this_process()
        self._cell = CellReader(folder / HOST_CELL, HostRequest.from_json)
        self._written = b""
        content = read_small_file(folder / RECIPE, MAX_RECIPE_BYTES)
        self.recipe: dict[str, Any] = parse_object(content)
        self.rows = read_rows(folder / ROWS, max_rows)
        self.fault: str | None = None
        """Why the host's cell is not valid now, if so."""
        self.request = self._read_request()
        self.origin = Origin(folder.parent.name, self.request.session, digest(content))
        self._beat = 0
        self._lock = threading.Lock()
        self._silence = SilenceTimer()

    def _read_request(self) -> HostRequest:
        request = self._cell.read()
        if request is None:
            raise ValueError(f"{self.folder / HOST_CELL} is damaged")
        return request

    def update(self) -> bool:
        """Read the host's cell; return whether the request has changed. RankGone if the host is done."""
        try:
            request = self._read_request()
        except FileNotFoundError:
            raise RankGone(f"{self.folder} was removed") from None
        except ValueError as error:
            self.fault = str(error)
            return False
        self.fault = None
        if request.closed or request.session != self.origin.session:
            raise RankGone(f"{self.folder}: the host has {'closed' if request.closed else 'begun a new session'}")
        self._silence.note(request.beat)
        changed = request.stretches != self.request.stretches
        self.request = request
        return changed

    @property
    def is_abandoned(self) -> bool:
        return is_abandoned(self.request.process, self._silence.seconds)

    def claim(self, silence: SilenceTimer) -> bool:
        """Take the rank, unless another live offload worker has it; `silence` follows that one's heartbeat."""
        if is_held(self.folder, self._worker, silence, self.origin.session):
            return False
        self._write(Heartbeat(self.origin.session, self._worker, 0, "waiting", process=self._process))
        time.sleep(_CLAIM_SECONDS)
        holder = read_heartbeat(self.folder)
        return holder is not None and holder.worker == self._worker

    def write(self, beat: Heartbeat) -> None:
        """Write the cell, with the next beat. Any thread may call this. RankGone if another worker has the rank."""
        with self._lock:
            try:
                unchanged = read_cell_bytes(self.folder / WORKER_CELL) == self._written
                holder = None if unchanged else read_heartbeat(self.folder)
            except FileNotFoundError:
                raise RankGone(f"{self.folder} was removed") from None
            if holder is not None and (holder.worker, holder.session) != (self._worker, self.origin.session):
                raise RankGone(f"{self.folder}: the offload worker {holder.worker} has taken over")
            self._beat += 1
            self._write(
                replace(beat, session=self.origin.session, worker=self._worker, beat=self._beat, process=self._process)
            )

    def _write(self, beat: Heartbeat) -> None:
        try:
            self._written = write_cell(self.folder / WORKER_CELL, beat.to_json())
        except FileNotFoundError:
            raise RankGone(f"{self.folder} was removed") from None


def read_rows(path: Path, max_rows: int) -> npt.NDArray[np.int64] | None:
    """Read the rows of a selection; None if there is none, ValueError or OSError if it is not an array of int64."""
    try:
        content = read_small_file(path, _MAX_ROWS_HEADER + 8 * max_rows)
    except FileNotFoundError:
        return None
    try:
        file = io.BytesIO(content)
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file, max_header_size=_MAX_ROWS_HEADER)
        rows = np.frombuffer(content, np.int64, offset=file.tell())
        if dtype != np.int64 or shape != rows.shape:
            raise ValueError(f"{dtype} of shape {shape} in {len(content)} bytes")
    except MALFORMED as error:
        raise ValueError(f"{path} must be an array of int64 with one dimension: {error}") from None
    return rows


def is_abandoned(host: Process, silent_seconds: float) -> bool:
    """Whether a host is dead. On this machine that is certain; a host on another machine must have been silent."""
    if host.machine and host.machine == this_machine():
        return is_gone(host)
    return silent_seconds > ABANDONED_SECONDS


def is_held(folder: Path, worker: str, silence: SilenceTimer, session: str | None = None) -> bool:
    """Whether another live offload worker has the rank; with `session`, only one that works for that session."""
    holder = read_heartbeat(folder)
    if holder is None or holder.worker == worker or session not in (None, holder.session):
        return False
    silence.note((holder.worker, holder.beat))
    return not holder.is_vacant and silence.seconds < TAKEOVER_SECONDS


def read_heartbeat(folder: Path) -> Heartbeat | None:
    """Read the offload worker's cell; None if there is no worker, or the cell is not valid."""
    document = read_cell(folder / WORKER_CELL)
    try:
        return None if document is None else Heartbeat.from_json(document)
    except ValueError:
        return None


class ServedRank:
    """A rank that this offload worker holds. For the worker's main thread; others may call `heartbeat`."""

    def __init__(self, cells: RankCells, maker: BatchMaker, token: str) -> None:
        self.cells, self.maker = cells, maker
        self._files = PublishedBatches(cells.folder, cells.rank, token)
        self._stretches: tuple[Stretch, ...] = ()
        self._complaint = ""
        self._updated = self._checked = 0.0
        # By epoch, start, stop and bottom of a stretch: the mark, and the top for which it was found.
        self._marks: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        self._retry_at = 0.0
        self._begun: float | None = None
        self._times: deque[float] = deque(maxlen=_TIMED_BATCHES)
        self._batch_bytes = max(self._files.held.values(), default=0)
        self.seconds_per_batch: float | None = None
        self.state: State = "waiting"
        self.reason = ""
        self.batches = 0
        self.written_bytes = 0
        self.busy_seconds = 0.0
        self.ahead_bytes = 0
        self._apply_request()

    @property
    def title(self) -> str:
        return f"rank {self.cells.rank} of run {self.cells.folder.parent.name}"

    @property
    def summary(self) -> str:
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        return f"prepared {batches}, {self.written_bytes / 1e6:.3g} MB"

    @property
    def trouble(self) -> str:
        """What is wrong now: with the folder, with the host's request, or with its cell."""
        return self.reason or self._complaint or self.cells.fault or ""

    @property
    def held_bytes(self) -> int:
        return self._files.held_bytes

    def update(self, ahead_bytes: int) -> None:
        """Read the host's request, at most every 10 ms. RankGone if there is no host any more."""
        self.ahead_bytes = ahead_bytes
        now = time.monotonic()
        if now - self._updated < _LOOK_SECONDS:
            return
        self._updated = now
        if self.cells.update():
            self._retry_at = 0.0
            self._apply_request()

    def is_abandoned(self) -> bool:
        """Whether the host has died without removing its files; checked at most every 0.25 s."""
        if time.monotonic() - self._checked < _ABANDONED_CHECK_SECONDS:
            return False
        self._checked = time.monotonic()
        return self.cells.is_abandoned

    def next_name(self, in_progress: Collection[BatchName]) -> BatchName | None:
        """Return the batch to make next; None if there is none, or no room for it."""
        if time.monotonic() < self._retry_at:
            return None
        name = None
        if self._has_room(len(in_progress)):
            names = (self._next_of(stretch, in_progress) for stretch in self._stretches)
            name = next((name for name in names if name is not None), None)
        if name is not None:
            self._begun = self._begun or time.monotonic()
            self.state = "working"
        elif not in_progress:
            self._begun = None  # waiting for the host does not count as time of a batch
            self.state, self.reason = "waiting", ""
        return name

    def _has_room(self, in_progress: int) -> bool:
        if not self._files.held and not in_progress:
            return True
        coming = (in_progress + 1) * self._batch_bytes  # unknown, 0, before the first batch
        return coming > 0 and self._files.held_bytes + coming <= self.ahead_bytes

    def _next_of(self, stretch: Stretch, in_progress: Collection[BatchName]) -> BatchName | None:
        for number in range(self._mark(stretch) - 1, stretch.bottom - 1, -1):
            name = self._name(stretch, number)
            if name not in in_progress and name not in self._files.held:
                return name
        return None

    def _name(self, stretch: Stretch, number: int) -> BatchName:
        return BatchName(stretch.epoch, self.cells.rank, stretch.start, stretch.stop, number)

    def _mark(self, stretch: Stretch) -> int:
        """Return the lowest batch such that all from it up to the top are published."""
        mark, top = self._marks.get(stretch[:4], (0, -1))
        if stretch.top > top or not stretch.bottom <= mark <= stretch.top:
            mark = stretch.top
        while mark > stretch.bottom and self._name(stretch, mark - 1) in self._files.held:
            mark -= 1
        self._marks[stretch[:4]] = (mark, stretch.top)
        return mark

    def _apply_request(self) -> None:
        """Remove what the host does not want any more."""
        self._complaint = ""
        self._stretches = tuple(stretch for stretch in self.cells.request.stretches if self._exists(stretch))
        self._files.keep_only(self.wants)
        if not self._stretches:
            self._files.drop_spare()
        known = {stretch[:4] for stretch in self._stretches}
        self._marks = {key: mark for key, mark in self._marks.items() if key in known}
        self._update_marks()

    def _update_marks(self) -> None:
        for stretch in self._stretches:
            self._mark(stretch)

    def wants(self, name: BatchName) -> bool:
        return any(stretch.wants(name) for stretch in self._stretches)

    def _exists(self, stretch: Stretch) -> bool:
        """Whether the epoch has such batches: a host could request 2**48 of them."""
        try:
            count = self.maker.batch_count(
                epoch=stretch.epoch, rank=self.cells.rank, start=stretch.start, stop=stretch.stop
            )
        except MALFORMED:
            count = 0
        if stretch.top > count:
            self._complaint = f"the host requests batch {stretch.top - 1} of {count}"
        return stretch.top <= count

    def publish(self, name: BatchName, batch: Any, declined: str | None = None) -> None:
        """Write a batch if it is still wanted. OSError if the folder cannot be written to; RankGone."""
        if self.cells.update():
            self._apply_request()
        if not self.wants(name):
            return
        try:
            content = pack_batch(name, self.cells.origin, batch, declined)
        except ValueError as error:
            content = pack_batch(name, self.cells.origin, {}, str(error))
        self._files.write(name, content)
        self.state, self.reason = "working", ""
        self.written_bytes += content.n_bytes
        self.batches += 1
        if declined is None or not self._batch_bytes:
            self._batch_bytes = content.n_bytes
        self._update_marks()
        now = time.monotonic()
        if self._begun is not None:
            self.busy_seconds += now - self._begun
            if self.batches > 1:  # the first includes the warm-up
                self._times.append(now - self._begun)
                self.seconds_per_batch = sum(self._times) / len(self._times)
        self._begun = now

    def fail(self, error: OSError) -> None:
        """Wait before the next attempt: the folder is full or cannot be used. RankGone if it does not exist."""
        if not is_folder(self.cells.folder):
            raise RankGone(f"{self.cells.folder} was removed") from None
        self._files.drop_spare()
        self.state = "full" if error.errno in _DISK_FULL else "trouble"
        self.reason = f"{self.cells.folder}: {error.strerror or error}"
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        self._begun = None

    def heartbeat(self) -> Heartbeat:
        """Return the figures of this rank."""
        return Heartbeat(
            session="",
            worker="",
            beat=0,
            state=self.state,
            reason=self.trouble,
            marks=tuple((*key[:3], *mark) for key, mark in self._marks.copy().items()),
            batches=self.batches,
            busy_seconds=self.busy_seconds,
            seconds_per_batch=self.seconds_per_batch,
            ahead_bytes=self.ahead_bytes,
            held_bytes=self.held_bytes,
        )
