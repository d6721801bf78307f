# SPDX-License-Identifier: Apache-2.0
"""The thread that writes a host's cell and reads the offload worker's, so that a training step never waits.

Clocks of two machines are never compared. Each side counts beats in its cell, and the other looks, by its own clock,
how long ago the count last changed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.offload.exchange._cell import CellReader, cell_content, unpack_cell, write_cell
from headrace.offload.exchange._folder import leave_run, make_rank_folder, remove_plan, remove_rank
from headrace.offload.exchange._machine import this_process
from headrace.offload.exchange._names import BEAT_SECONDS, HOST, NEAR, SILENT_SECONDS, Stretch
from headrace.offload.exchange._status import Heartbeat, HostRequest

_AGAIN_SECONDS = 2.0
# Orders that follow one closely are written together: one of each small batch would cost a core some per cent.
_TOGETHER_SECONDS = 0.005
_END_SECONDS = 5.0


class SilenceTimer:
    """How long ago a count last changed, by this process' clock."""

    def __init__(self) -> None:
        self._last: object = None
        self._changed = time.monotonic()

    def note(self, count: object) -> None:
        if count != self._last:
            self._last, self._changed = count, time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._changed


class HostHeartbeat:
    """A rank's folder and the thread that keeps it: made, spoken for, and removed at the end.

    Knows nothing of the exchange that it works for, so it keeps none alive. A folder that vanishes is made anew.
    """

    def __init__(self, folder: Path, session: str, recipe: bytes, rows: npt.NDArray[np.int64] | None) -> None:
        self._folder, self._session, self._recipe, self._rows = folder, session, recipe, rows
        self._process = this_process()
        self._stretches: tuple[Stretch, ...] = ()
        self._beat = 0
        self._stopped = self._lost = False
        self._made = time.monotonic()
        self._kept: list[Path] = []
        self._watch = SilenceTimer()
        self._near = CellReader(folder / NEAR, Heartbeat.from_json)
        self._written = b""
        self._looked = 0.0
        self._found: Heartbeat | None = None
        self._wake = threading.Event()
        self.trouble: str | None = None
        make_rank_folder(folder, self._wish(), recipe, rows)
        self._thread = threading.Thread(target=self._run, name="headrace-exchange", daemon=True)
        self._thread.start()

    def order(self, stretches: tuple[Stretch, ...], *, soon: bool) -> None:
        self._stretches = stretches
        if soon:
            self._wake.set()

    def keep(self, path: Path) -> None:
        """Remember a file outside the folder, to be removed with it."""
        self._kept.append(path)

    @property
    def seen(self) -> Heartbeat | None:
        """What the offload worker's cell said when it was last looked at."""
        return self._near.last

    def look(self, within: float = 0.0) -> Heartbeat | None:
        """Read the offload worker's cell; None if it cannot be read or nobody has written to it.

        What it said `within` so many seconds will do: this thread looks with every beat.
        """
        now = time.monotonic()
        if now - self._looked < within:
            return self._found
        try:
            beat = self._near.read()
        except (OSError, ValueError):
            beat = None
        if beat is not None:
            self._watch.note((beat.worker, beat.beat))
        self._looked, self._found = now, beat
        return beat

    @property
    def silent_seconds(self) -> float:
        if self._watch.seconds > SILENT_SECONDS:
            self.look()  # it may be this process that was frozen
        return self._watch.seconds

    def close(self) -> None:
        """End the thread, which removes everything before it ends."""
        self._stopped = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_END_SECONDS)

    def drop(self) -> None:
        """Let the thread end by itself: for finalizers, which must not take a lock."""
        self._stopped = True

    def _wish(self) -> HostRequest:
        return HostRequest(self._session, self._beat, self._process, self._stretches, closed=self._stopped)

    def _run(self) -> None:
        while not self._stopped:
            self._tell()
            told = time.monotonic()
            if told - self._looked > BEAT_SECONDS / 2:
                self.look()
            self._wake.wait(BEAT_SECONDS)
            early = told + _TOGETHER_SECONDS - time.monotonic()
            if early > 0 and not self._stopped:
                time.sleep(early)
            self._wake.clear()
        self._leave()

    def _tell(self) -> None:
        """Write the cell, unless another loader of the same run and rank has taken the folder over."""
        self._beat += 1
        try:
            self._lost = self._is_taken_over()
            if self._lost:
                self.trouble = f"{self._folder}: another loader of the same run and rank has taken over"
                return
            self._written = write_cell(self._folder / HOST, self._wish().to_json())
            self.trouble = None
        except FileNotFoundError:
            self._make_again()
        except OSError as error:
            self.trouble = f"{self._folder}: {error.strerror or error}"

    def _is_taken_over(self) -> bool:
        content = cell_content(self._folder / HOST)
        found = None if content == self._written else unpack_cell(content)
        return found is not None and found.get("session") != self._session

    def _make_again(self) -> None:
        self.trouble = f"{self._folder}: the folder has vanished"
        if time.monotonic() - self._made < _AGAIN_SECONDS or not self._folder.parent.parent.is_dir():
            return
        self._made = time.monotonic()
        try:
            make_rank_folder(self._folder, self._wish(), self._recipe, self._rows)
            self.trouble = None
        except OSError as error:
            self.trouble = f"{self._folder}: it has vanished and cannot be made again: {error.strerror or error}"

    def _leave(self) -> None:
        """Tell the offload worker that nothing is wanted any more, then remove all that there is."""
        if self._lost or self._process.number != os.getpid():
            return
        with contextlib.suppress(OSError):
            write_cell(self._folder / HOST, self._wish().to_json())
        with contextlib.suppress(OSError):
            remove_rank(self._folder)
        for path in self._kept:
            with contextlib.suppress(OSError):
                remove_plan(path)
        leave_run(self._folder.parent)
