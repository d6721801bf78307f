# SPDX-License-Identifier: Apache-2.0
"""A rank's folder, kept alive by a thread that writes the host's heartbeat and reads the offload worker's.

So a training step never waits for the folder, and a folder that disappears is created again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.offload.exchange._documents import Heartbeat, HostRequest
from headrace.offload.exchange._files import CellReader, read_cell_bytes, unpack_cell, write_cell
from headrace.offload.exchange._folder import make_rank_folder, remove_empty_run, remove_plans, remove_rank
from headrace.offload.exchange._liveness import BEAT_SECONDS, SILENT_SECONDS, this_process
from headrace.offload.exchange._names import HOST_CELL, WORKER_CELL, Stretch, rank_of

_REMAKE_SECONDS = 2.0
# Requests within this time are written together: one write per small batch would cost a few per cent of a core.
_TOGETHER_SECONDS = 0.005
_CLOSE_SECONDS = 5.0


class HostHeartbeat:
    """A rank's folder and its thread, which removes the folder at the end. It does not keep its user alive."""

    def __init__(self, folder: Path, session: str, recipe: bytes, rows: npt.NDArray[np.int64] | None) -> None:
        self._folder, self._session, self._recipe, self._rows = folder, session, recipe, rows
        self._process = this_process()
        self._stretches: tuple[Stretch, ...] = ()
        self._beat = 0
        self._stopped = self._lost = False
        self._written = b""
        self._read_at = 0.0
        self._found: Heartbeat | None = None
        self._wake = threading.Event()
        self.worker_cell = CellReader(folder / WORKER_CELL, Heartbeat.from_json)
        self.trouble: str | None = None
        self._make_folder()
        self._thread = threading.Thread(target=self._run, name="headrace-exchange", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def request(self, stretches: tuple[Stretch, ...], *, soon: bool) -> None:
        """Set what is requested; written at once if `soon`, else with the next heartbeat."""
        self._stretches = stretches
        if soon:
            self._wake.set()

    def read(self, max_age: float = 0.0) -> Heartbeat | None:
        """Return the offload worker's heartbeat, read at most `max_age` seconds ago; None if there is none."""
        now = time.monotonic()
        if now - self._read_at < max_age:
            return self._found
        try:
            beat = self.worker_cell.read()
        except (OSError, ValueError):
            beat = None
        self._found, self._read_at = beat, now  # in this order, for other threads
        return beat

    @property
    def silent_seconds(self) -> float:
        if self.worker_cell.silent_seconds > SILENT_SECONDS:
            self.read()  # maybe this process was frozen
        return self.worker_cell.silent_seconds

    def close(self) -> None:
        """End the thread, which removes all files first. Does nothing in a forked child."""
        if self._process.number != os.getpid():
            return
        self._stopped = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_SECONDS)

    def drop(self) -> None:
        """Let the thread end by itself: for finalizers, which must not take a lock."""
        self._stopped = True

    def _request(self) -> HostRequest:
        return HostRequest(self._session, self._beat, self._process, self._stretches, closed=self._stopped)

    def _make_folder(self) -> None:
        self._made = time.monotonic()
        make_rank_folder(self._folder, self._request(), self._recipe, self._rows)

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
        atexit.unregister(self.close)

    def _write(self) -> None:
        """Write the cell, unless another loader of the same run and rank has taken the folder over."""
        self._beat += 1
        try:
            content = read_cell_bytes(self._folder / HOST_CELL)
            found = None if content == self._written else unpack_cell(content)
            self._lost = found is not None and found.get("session") != self._session
            if self._lost:
                self.trouble = f"{self._folder}: another loader of the same run and rank has taken over"
            else:
                self._written = write_cell(self._folder / HOST_CELL, self._request().to_json())
                self.trouble = None
        except FileNotFoundError:
            self._make_again()
        except OSError as error:
            self.trouble = f"{self._folder}: {error.strerror or error}"

    def _make_again(self) -> None:
        gone = f"{self._folder}: the folder has disappeared"
        self.trouble = gone
        if time.monotonic() - self._made < _REMAKE_SECONDS or not self._folder.parent.parent.is_dir():
            return
        try:
            self._make_folder()
            self.trouble = None
        except OSError as error:
            self.trouble = f"{gone} and cannot be created again: {error.strerror or error}"

    def _remove(self) -> None:
        """Write that nothing is wanted any more, then remove all files."""
        if self._lost:
            return
        with contextlib.suppress(OSError):
            write_cell(self._folder / HOST_CELL, self._request().to_json())
        with contextlib.suppress(OSError):
            remove_rank(self._folder)
        if rank_of(self._folder.name) == 0:  # the rank that publishes plans
            with contextlib.suppress(OSError):
                remove_plans(self._folder.parent)
        remove_empty_run(self._folder.parent)
