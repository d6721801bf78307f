# SPDX-License-Identifier: Apache-2.0
"""The host's side of an exchange: requests batches and reads those that are ready (spec/exchange.md)."""

from __future__ import annotations

import json
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headrace.errors import BadPreparedBatch, ExchangeError
from headrace.offload.exchange._batch_file import (
    LIMITS,
    BatchReader,
    Limits,
    Memory,
    PreparedBatch,
    batch_file,
    is_within,
)
from headrace.offload.exchange._batch_header import bad_batch
from headrace.offload.exchange._documents import MAX_STRETCHES, Heartbeat, parse_object
from headrace.offload.exchange._files import read_small_file
from headrace.offload.exchange._folder import remove_dead_ranks, remove_plans, write_plan
from headrace.offload.exchange._host_heartbeat import HostHeartbeat
from headrace.offload.exchange._names import (
    BatchName,
    Origin,
    Stretch,
    digest,
    new_token,
    plan_file,
    rank_folder,
    run_folder,
)

MAX_PLAN_BYTES = 1 << 20


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
    ) -> None:
        self.path, self.run, self.rank = Path(path), run, rank
        self.session = new_token()
        content = json.dumps(recipe, sort_keys=True, separators=(",", ":")).encode()
        self._folder = rank_folder(self.path, run, rank)
        self._rejected = Counter[str]()
        self._read_bytes = self._read_batches = 0
        self._reader = BatchReader(Origin(run, self.session, digest(content)), take=take)
        if not self.path.is_dir():
            raise ExchangeError(f"{self.path}: no such folder: create or mount the exchange folder on both sides")
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
        weakref.finalize(self, self._heartbeat.drop).atexit = False  # at exit, the heartbeat closes itself

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
        beat = self.heartbeat()
        return beat is not None and is_within(name, beat.marks)

    def read(self, name: BatchName, limits: Limits = LIMITS) -> PreparedBatch | None:
        """Return a prepared batch; None if it is not ready.

        Raises:
            BadPreparedBatch: It is truncated, damaged, stale, of another run or larger than `limits`, or the offload
                worker could not make it.

        """
        last = self._own(self._heartbeat.worker_cell.last)
        known = last is not None and is_within(name, last.marks)  # the offload worker may be several batches ahead
        if not known and not self.ready(name):
            return None
        path = f"{self._folder}{os.sep}{batch_file(name)}"
        try:
            prepared = self._reader.read(path, name, limits)
            if prepared is None:
                if known and not self.ready(name):
                    return None  # another offload worker has taken over, and has not made it yet
                raise bad_batch(
                    "unreadable", f"{path}: the offload worker has published it, but the file does not exist"
                )
        except BadPreparedBatch as error:
            self._rejected[error.kind] += 1
            raise
        self._read_bytes += prepared.n_bytes
        self._read_batches += 1
        return prepared

    def heartbeat(self, max_age: float = 0.0) -> Heartbeat | None:
        """Return the offload worker's heartbeat, read at most `max_age` seconds ago; None if there is no worker."""
        return self._own(self._heartbeat.read(max_age))

    def _own(self, beat: Heartbeat | None) -> Heartbeat | None:
        """Return a heartbeat if it is for this session, and not for an earlier loader with the same run and rank."""
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
            "rejected": dict(self._rejected),
            "worker": None if beat is None else asdict(beat),
        }

    def publish_plan(self, epoch: int, document: Mapping[str, Any]) -> None:
        """Write a plan for all ranks of the run. If that fails, `trouble` says why."""
        path = run_folder(self.path, self.run) / plan_file(epoch)
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
        self._heartbeat.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
