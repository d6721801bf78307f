# SPDX-License-Identifier: Apache-2.0
"""The host's side of an exchange: requests batches and reads those that are ready (spec/exchange.md).

A thread writes the host's cell and reads the offload worker's with every heartbeat, so that a training step never waits
for the folder.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headrace.errors import BadPreparedBatch, ExchangeError
from headrace.offload.exchange._batch_file import LIMITS, BatchReader, Limits, Memory, PreparedBatch, batch_file
from headrace.offload.exchange._batch_header import bad_batch
from headrace.offload.exchange._documents import (
    BEAT_SECONDS,
    HOST_CELL,
    MAX_STRETCHES,
    SILENT_SECONDS,
    WORKER_CELL,
    BatchName,
    Heartbeat,
    HostRequest,
    Origin,
    Stretch,
    digest,
    new_token,
    parse_object,
    plan_file,
    rank_folder,
    run_folder,
    this_process,
)
from headrace.offload.exchange._files import (
    CellReader,
    SilenceTimer,
    read_cell_bytes,
    read_small_file,
    unpack_cell,
    write_cell,
)
from headrace.offload.exchange._folder import (
    make_rank_folder,
    remove_dead_ranks,
    remove_empty_run,
    remove_plan,
    remove_plans,
    remove_rank,
    write_plan,
)

MAX_PLAN_BYTES = 1 << 20
_REMAKE_SECONDS = 2.0
# Requests within this time are written together: one write per small batch would cost a few per cent of a core.
_TOGETHER_SECONDS = 0.005
_CLOSE_SECONDS = 5.0


def is_published(name: BatchName, beat: Heartbeat | None) -> bool:
    """Whether a batch that the host still wants can be read, according to the offload worker's heartbeat."""
    marks = () if beat is None else beat.marks
    return any(mark[:3] == (name.epoch, name.start, name.stop) and mark[3] <= name.number < mark[4] for mark in marks)


class HostHeartbeat:
    """A rank's folder and the thread that keeps it alive and removes it at the end.

    It does not keep the exchange that uses it alive. A folder that disappears is created again.
    """

    def __init__(self, folder: Path, session: str, recipe: bytes, rows: npt.NDArray[np.int64] | None) -> None:
        self._folder, self._session, self._recipe, self._rows = folder, session, recipe, rows
        self._process = this_process()
        self._stretches: tuple[Stretch, ...] = ()
        self._beat = 0
        self._stopped = self._lost = False
        self._made = time.monotonic()
        self._plans: list[Path] = []
        self._silence = SilenceTimer()
        self._cell = CellReader(folder / WORKER_CELL, Heartbeat.from_json)
        self._written = b""
        self._read_at = 0.0
        self._found: Heartbeat | None = None
        self._wake = threading.Event()
        self.trouble: str | None = None
        make_rank_folder(folder, self._request(), recipe, rows)
        self._thread = threading.Thread(target=self._run, name="headrace-exchange", daemon=True)
        self._thread.start()

    def request(self, stretches: tuple[Stretch, ...], *, soon: bool) -> None:
        """Set what is requested; written at once if `soon`, else with the next heartbeat."""
        self._stretches = stretches
        if soon:
            self._wake.set()

    def add_plan(self, path: Path) -> None:
        """Remember a plan's file, to remove it at the end."""
        self._plans.append(path)

    @property
    def last(self) -> Heartbeat | None:
        """The offload worker's heartbeat that was last read."""
        return self._cell.last

    def read(self, max_age: float = 0.0) -> Heartbeat | None:
        """Return the offload worker's heartbeat, read at most `max_age` seconds ago; None if there is none."""
        now = time.monotonic()
        if now - self._read_at < max_age:
            return self._found
        try:
            beat = self._cell.read()
        except (OSError, ValueError):
            beat = None
        if beat is not None:
            self._silence.note((beat.worker, beat.beat))
        self._read_at, self._found = now, beat
        return beat

    @property
    def silent_seconds(self) -> float:
        if self._silence.seconds > SILENT_SECONDS:
            self.read()  # maybe this process was frozen
        return self._silence.seconds

    def close(self) -> None:
        """End the thread, which removes all files first."""
        self._stopped = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_SECONDS)

    def drop(self) -> None:
        """Let the thread end by itself: for finalizers, which must not take a lock."""
        self._stopped = True

    def _request(self) -> HostRequest:
        return HostRequest(self._session, self._beat, self._process, self._stretches, closed=self._stopped)

    def _run(self) -> None:
        while not self._stopped:
            self._write()
            written = time.monotonic()
            if written - self._read_at > BEAT_SECONDS / 2:
                self.read()
            self._wake.wait(BEAT_SECONDS)
            early = written + _TOGETHER_SECONDS - time.monotonic()
            if early > 0 and not self._stopped:
                time.sleep(early)
            self._wake.clear()
        self._remove()

    def _write(self) -> None:
        """Write the cell, unless another loader of the same run and rank has taken the folder over."""
        self._beat += 1
        try:
            self._lost = self._is_taken_over()
            if self._lost:
                self.trouble = f"{self._folder}: another loader of the same run and rank has taken over"
                return
            self._written = write_cell(self._folder / HOST_CELL, self._request().to_json())
            self.trouble = None
        except FileNotFoundError:
            self._make_again()
        except OSError as error:
            self.trouble = f"{self._folder}: {error.strerror or error}"

    def _is_taken_over(self) -> bool:
        content = read_cell_bytes(self._folder / HOST_CELL)
        found = None if content == self._written else unpack_cell(content)
        return found is not None and found.get("session") != self._session

    def _make_again(self) -> None:
        self.trouble = f"{self._folder}: the folder has disappeared"
        if time.monotonic() - self._made < _REMAKE_SECONDS or not self._folder.parent.parent.is_dir():
            return
        self._made = time.monotonic()
        try:
            make_rank_folder(self._folder, self._request(), self._recipe, self._rows)
            self.trouble = None
        except OSError as error:
            self.trouble = (
                f"{self._folder}: the folder has disappeared and cannot be created again: {error.strerror or error}"
            )

    def _remove(self) -> None:
        """Write that nothing is wanted any more, then remove all files."""
        if self._lost or self._process.number != os.getpid():
            return
        with contextlib.suppress(OSError):
            write_cell(self._folder / HOST_CELL, self._request().to_json())
        with contextlib.suppress(OSError):
            remove_rank(self._folder)
        for path in self._plans:
            with contextlib.suppress(OSError):
                remove_plan(path)
        remove_empty_run(self._folder.parent)


class HostExchange:
    """One loader's use of an exchange folder.

    After construction, problems with the folder are not errors: a folder that is full, read-only or gone has no
    batches, and `trouble` says why. For one thread at a time. A forked child needs its own.

    Args:
        path: The exchange folder, which must exist.
        run: Name of the training: 1 to 64 letters, digits, '-' and '_'; the same for all its ranks.
        rank: Rank of this loader.
        recipe: How samples become batches (spec/recipe.md).
        rows: The rows of a selection, if the recipe has the digest of one.
        take: Returns aligned memory to read a batch into, and reuses it when nothing refers to it; None allocates.
        direct: Read past the page cache if the file system allows it, which saves the host a copy of each batch.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        run: str,
        rank: int,
        recipe: Mapping[str, Any],
        rows: npt.NDArray[np.int64] | None = None,
        take: Callable[[int], Memory] | None = None,
        direct: bool = True,
    ) -> None:
        self.path, self.run, self.rank = Path(path), run, rank
        self.session = new_token()
        content = json.dumps(recipe, sort_keys=True, separators=(",", ":")).encode()
        self._folder = rank_folder(self.path, run, rank)
        self._rejected = Counter[str]()
        self._read_bytes, self._read_batches, self._read_seconds, self._read_cpu = 0, 0, 0.0, 0.0
        self._reader = BatchReader(Origin(run, self.session, digest(content)), take=take, direct=direct)
        self._process = os.getpid()
        if not self.path.is_dir():
            raise ExchangeError(f"{self.path}: no such folder; create or mount the exchange folder on both sides")
        try:
            remove_dead_ranks(self.path)
            if rank == 0:
                remove_plans(run_folder(self.path, run))
            self._heartbeat = HostHeartbeat(self._folder, self.session, content, rows)
        except OSError as error:
            raise ExchangeError(
                f"{self.path}: the exchange folder cannot be used: {error.strerror or error}; both sides must be able "
                f"to write to it"
            ) from error
        weakref.finalize(self, self._heartbeat.drop).atexit = False  # at exit it is closed
        _open.add(self)

    def request(self, stretches: Iterable[Stretch], *, soon: bool = True) -> None:
        """Set which batches are wanted, those of the first stretch first. Replaces the request before.

        The offload worker removes batches that no stretch wants: lower a `top` only below batches that were read. It
        sees the request at once if `soon`, else with the host's next heartbeat.
        """
        wanted = tuple(stretch for stretch in stretches if stretch.top > stretch.bottom)
        if len(wanted) > MAX_STRETCHES:
            raise ValueError(f"at most {MAX_STRETCHES} stretches can be requested at a time; got {len(wanted)}")
        self._heartbeat.request(wanted, soon=soon)

    def ready(self, name: BatchName) -> bool:
        """Whether a requested batch can be read. Reads one small file."""
        return is_published(name, self.heartbeat())

    def read(self, name: BatchName, limits: Limits = LIMITS) -> PreparedBatch | None:
        """Return a prepared batch; None if it is not ready.

        Raises:
            BadPreparedBatch: It is truncated, damaged, stale, of another run or larger than `limits`, or the offload
                worker could not make it.

        """
        known = is_published(name, self._own(self._heartbeat.last))  # the offload worker may be several batches ahead
        if not known and not self.ready(name):
            return None
        path = f"{self._folder}{os.sep}{batch_file(name)}"
        try:
            prepared = self._reader.read(path, name, limits)
            if prepared is None:
                if known and not self.ready(name):
                    return None  # another offload worker has taken over, and has not made it yet
                raise bad_batch("unreadable", f"{path}: the offload worker has published it, but there is no such file")
        except BadPreparedBatch as error:
            self._rejected[error.kind] += 1
            raise
        self._read_seconds += prepared.seconds
        self._read_cpu += prepared.cpu_seconds
        self._read_bytes += prepared.n_bytes
        self._read_batches += 1
        return prepared

    def heartbeat(self, max_age: float = 0.0) -> Heartbeat | None:
        """Return the offload worker's heartbeat, read at most `max_age` seconds ago; None if there is no worker."""
        return self._own(self._heartbeat.read(max_age))

    def _own(self, beat: Heartbeat | None) -> Heartbeat | None:
        return beat if beat is not None and beat.session == self.session else None

    @property
    def silent_seconds(self) -> float:
        """How long the offload worker's heartbeat has not changed, by this side's clock."""
        return self._heartbeat.silent_seconds

    @property
    def trouble(self) -> str | None:
        """Why the folder cannot be written to, if so."""
        return self._heartbeat.trouble

    def stats(self) -> dict[str, Any]:
        """Return what was read from the exchange, and the offload worker's heartbeat."""
        beat = self.heartbeat()
        return {
            "read_bytes": self._read_bytes,
            "read_batches": self._read_batches,
            "read_seconds": self._read_seconds,
            "read_cpu_seconds": self._read_cpu,
            "rejected": dict(self._rejected),
            "worker": None if beat is None else asdict(beat),
        }

    def publish_plan(self, epoch: int, document: Mapping[str, Any]) -> None:
        """Write a plan for all ranks of the run. If that fails, `trouble` says why."""
        path = run_folder(self.path, self.run) / plan_file(epoch)
        self._heartbeat.add_plan(path)
        try:
            write_plan(path, json.dumps(document, separators=(",", ":")).encode(), self.session)
        except OSError as error:
            self._heartbeat.trouble = f"{path}: {error.strerror or error}"

    def read_plan(self, epoch: int) -> dict[str, Any] | None:
        """Return the plan of an epoch; None if it is not published yet."""
        try:
            return parse_object(read_small_file(run_folder(self.path, self.run) / plan_file(epoch), MAX_PLAN_BYTES))
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Remove all files of this rank, and the run if no other rank is left. Never raises; may be called again."""
        if self._process == os.getpid():
            self._heartbeat.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_open: weakref.WeakSet[HostExchange] = weakref.WeakSet()


def _close_all() -> None:
    for exchange in list(_open):
        with contextlib.suppress(Exception):
            exchange.close()


atexit.register(_close_all)
