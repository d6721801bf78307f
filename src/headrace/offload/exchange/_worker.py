# SPDX-License-Identifier: Apache-2.0
"""The offload worker's side of an exchange: one rank's requests, and the cell in which it answers (spec/exchange.md).

At any time one offload worker holds a rank: the one whose name is in the `near` cell. It looks before each write
whether it still is. Two that take a rank in the same instant do the same work twice, to the same bits and under the
same name, until the next look; nothing else comes of it.
"""

from __future__ import annotations

import io
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.offload._untrusted import MALFORMED, parse_object
from headrace.offload.exchange._cell import CellReader, cell_content, read_cell, write_cell
from headrace.offload.exchange._files import read_small_file
from headrace.offload.exchange._heartbeat import SilenceTimer
from headrace.offload.exchange._machine import Process, is_gone, this_machine, this_process
from headrace.offload.exchange._names import (
    ABANDONED_SECONDS,
    HOST,
    NEAR,
    RECIPE,
    ROWS,
    TAKEOVER_SECONDS,
    Origin,
    digest,
)
from headrace.offload.exchange._status import Heartbeat, HostRequest

# Two claims of the same instant: both look again after this long, and find one name.
_CLAIM_SECONDS = 0.05
MAX_RECIPE_BYTES = 1 << 20
MAX_ROWS = 1 << 26
_MAX_ROWS_HEADER = 1 << 12


class Gone(Exception):
    """The rank's folder was removed, taken over by another offload worker or made again by another host."""


class WorkerRank:
    """One rank of one run, as an offload worker sees it."""

    def __init__(self, folder: Path, rank: int, worker: str, max_rows: int = MAX_ROWS) -> None:
        """Read what the host has published. OSError or ValueError if that cannot be done, or not yet."""
        self.folder, self.rank, self._worker = folder, rank, worker
        self._process = this_process()
        self._cell = CellReader(folder / HOST, HostRequest.from_json)
        self._written = b""
        content = read_small_file(folder / RECIPE, MAX_RECIPE_BYTES)
        self.recipe: dict[str, Any] = parse_object(content)
        self.rows = read_rows(folder / ROWS, max_rows)
        self.fault: str | None = None
        """Why the host's cell makes no sense at present, if it does not."""
        self.request = self._read_request()
        self.origin = Origin(folder.parent.name, self.request.session, digest(content))
        self._beat = 0
        self._lock = threading.Lock()
        self._host = SilenceTimer()

    def _read_request(self) -> HostRequest:
        request = self._cell.read()
        if request is None:
            raise ValueError(f"{self.folder / HOST} is damaged")
        return request

    def look(self) -> bool:
        """Read the host's cell; whether its requests have changed. Gone if there is nothing to request for any more."""
        try:
            request = self._read_request()
        except FileNotFoundError:
            raise Gone(f"{self.folder} was removed") from None
        except ValueError as error:
            self.fault = str(error)
            return False  # torn; the next look sees more
        self.fault = None
        if request.closed or request.session != self.origin.session:
            raise Gone(f"{self.folder}: the host has {'closed' if request.closed else 'begun a new session'}")
        self._host.note(request.beat)
        changed = request.stretches != self.request.stretches
        self.request = request
        return changed

    @property
    def host_silent_seconds(self) -> float:
        """How long, by this side's clock, the host has given no sign of life."""
        return self._host.seconds

    def claim(self, watch: SilenceTimer) -> bool:
        """Take the rank, unless another offload worker has it that lives.

        `watch` has seen the cell before: a worker on another machine is dead when its beat has not changed for long.
        """
        holder = read_near(self.folder)
        if holder is not None and holder.worker != self._worker and holder.session == self.origin.session:
            watch.note((holder.worker, holder.beat))
            if not holder.is_vacant and watch.seconds < TAKEOVER_SECONDS:
                return False
        self._write(Heartbeat(self.origin.session, self._worker, 0, "waiting", process=self._process))
        time.sleep(_CLAIM_SECONDS)
        holder = read_near(self.folder)
        return holder is not None and holder.worker == self._worker

    def say(self, beat: Heartbeat) -> None:
        """Write the cell, with a beat of its own. Any thread may. Gone if the rank is another's by now."""
        with self._lock:
            try:
                holder = None if cell_content(self.folder / NEAR) == self._written else read_near(self.folder)
            except FileNotFoundError:
                raise Gone(f"{self.folder} was removed") from None
            if holder is not None and (holder.worker, holder.session) != (self._worker, self.origin.session):
                raise Gone(f"{self.folder}: the offload worker {holder.worker} has taken over")
            self._beat += 1
            self._write(
                replace(beat, session=self.origin.session, worker=self._worker, beat=self._beat, process=self._process)
            )

    def _write(self, beat: Heartbeat) -> None:
        try:
            self._written = write_cell(self.folder / NEAR, beat.to_json())
        except FileNotFoundError:
            raise Gone(f"{self.folder} was removed") from None


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
    """Whether a host is dead. On this machine that is certain; on another one, silence has to do."""
    if host.machine and host.machine == this_machine():
        return is_gone(host)
    return silent_seconds > ABANDONED_SECONDS


def read_near(folder: Path) -> Heartbeat | None:
    """Read the offload worker's cell; None if nobody has written to it, or nothing that makes sense."""
    document = read_cell(folder / NEAR)
    try:
        return None if document is None else Heartbeat.from_json(document)
    except ValueError:
        return None


def read_request(folder: Path) -> HostRequest | None:
    """Read the host's cell; None if it is damaged, as in the midst of a write. ValueError if it makes no sense."""
    document = read_cell(folder / HOST)
    return None if document is None else HostRequest.from_json(document)
