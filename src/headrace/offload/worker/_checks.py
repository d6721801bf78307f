# SPDX-License-Identifier: Apache-2.0
"""What an offload worker checks before it serves a rank: the selection of rows, the host, and who holds the rank."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.offload.exchange._documents import (
    ABANDONED_SECONDS,
    MALFORMED,
    TAKEOVER_SECONDS,
    WORKER_CELL,
    Heartbeat,
    Process,
    is_gone,
    this_machine,
)
from headrace.offload.exchange._files import SilenceTimer, read_cell, read_small_file

_MAX_ROWS_HEADER = 1 << 12


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
