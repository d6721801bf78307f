# SPDX-License-Identifier: Apache-2.0
"""The host's side of an exchange: says which batches it wants, and reads those that are ready (spec/exchange.md)."""

from __future__ import annotations

import atexit
import contextlib
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
from headrace.offload._untrusted import parse_object
from headrace.offload.exchange._batch_file import LIMITS, Limits, bad
from headrace.offload.exchange._buffers import Memory
from headrace.offload.exchange._files import read_small_file
from headrace.offload.exchange._folder import remove_plans, sweep_dead, write_plan
from headrace.offload.exchange._heartbeat import HostHeartbeat
from headrace.offload.exchange._machine import new_token
from headrace.offload.exchange._names import (
    BatchName,
    Origin,
    Stretch,
    batch_file,
    digest,
    plan_file,
    rank_folder,
    run_folder,
)
from headrace.offload.exchange._reader import PreparedBatch, Reader
from headrace.offload.exchange._status import MAX_STRETCHES, Heartbeat

MAX_PLAN_BYTES = 1 << 20


class HostExchange:
    """One loader's use of an exchange folder, from its start to its end.

    All but the constructor take the folder's troubles calmly: one that is full, read-only or gone has no batches, and
    `trouble` says why. Methods are for one thread at a time. A forked child needs one of its own.

    Args:
        path: The exchange folder, which both sides see and which must exist.
        run: Names the training: 1 to 64 letters, digits, '-' and '_'; the same for all its ranks.
        rank: Of this loader.
        recipe: How samples become batches (spec/recipe.md).
        rows: The rows of a selection, where the recipe has a digest of one.
        take: Gives aligned memory to read a batch into, which it gets back when nothing refers to it; None takes pages.
        direct: Read past the page cache, as far as the file system can: that spares the host a copy of each batch.

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
        self._reader = Reader(Origin(run, self.session, digest(content)), take=take, direct=direct)
        self._process = os.getpid()
        if not self.path.is_dir():
            raise ExchangeError(f"{self.path}: no such folder; make the exchange folder, or mount it, on both sides")
        try:
            sweep_dead(self.path)
            if rank == 0:
                remove_plans(run_folder(self.path, run))
            self._voice = HostHeartbeat(self._folder, self.session, content, rows)
        except OSError as error:
            raise ExchangeError(
                f"{self.path}: the exchange folder cannot be used: {error.strerror or error}; both sides must be able "
                f"to write to it"
            ) from error
        weakref.finalize(self, self._voice.drop).atexit = False  # then it is closed, not only dropped
        _open.add(self)

    # Batches.

    def order(self, stretches: Iterable[Stretch], *, soon: bool = True) -> None:
        """Say which batches are wanted, in place of all said before: those of the first stretch first.

        What no stretch wants is removed by the offload worker: let a `top` sink below a batch once it has been read. It
        hears of it at once if `soon`, else with the host's next beat.
        """
        wanted = tuple(stretch for stretch in stretches if stretch.top > stretch.bottom)
        if len(wanted) > MAX_STRETCHES:
            raise ValueError(f"{len(wanted)} stretches are wanted at a time; {MAX_STRETCHES} is the most")
        self._voice.order(wanted, soon=soon)

    def ready(self, name: BatchName) -> bool:
        """Whether a batch that is wanted can be read. Looks into one small file, and at no name that is not there."""
        beat = self.heartbeat()
        return beat is not None and beat.published(name)

    def read(self, name: BatchName, limits: Limits = LIMITS) -> PreparedBatch | None:
        """Return a prepared batch; None if it is not there yet.

        Raises:
            BadPreparedBatch: It is truncated, damaged, stale, of another run, larger than `limits` allow, or the
                offload worker could not make it.

        """
        seen = self._for_us(self._voice.seen)
        known = seen is not None and seen.published(name)  # the offload worker may be several batches ahead
        if not known and not self.ready(name):
            return None
        path = f"{self._folder}{os.sep}{batch_file(name)}"
        try:
            prepared = self._reader.read(path, name, limits)
            if prepared is None:
                if known and not self.ready(name):
                    return None  # another offload worker has come, and has not made it yet
                raise bad("unreadable", f"{path}: the offload worker has published it, and it is not there")
        except BadPreparedBatch as error:
            self._rejected[error.kind] += 1
            raise
        self._read_seconds += prepared.seconds
        self._read_cpu += prepared.cpu_seconds
        self._read_bytes += prepared.n_bytes
        self._read_batches += 1
        return prepared

    # The other side.

    def heartbeat(self, within: float = 0.0) -> Heartbeat | None:
        """Tell how the offload worker is doing, or was `within` so many seconds; None if none has come yet."""
        return self._for_us(self._voice.look(within))

    def _for_us(self, beat: Heartbeat | None) -> Heartbeat | None:
        return beat if beat is not None and beat.session == self.session else None

    @property
    def silent_seconds(self) -> float:
        """How long, by this side's clock, the offload worker has given no sign of life."""
        return self._voice.silent_seconds

    @property
    def trouble(self) -> str | None:
        """Why the folder cannot be written to, if it cannot."""
        return self._voice.trouble

    def stats(self) -> dict[str, Any]:
        """Tell what came through the exchange, and what the offload worker says of itself."""
        beat = self.heartbeat()
        return {
            "read_bytes": self._read_bytes,
            "read_batches": self._read_batches,
            "read_seconds": self._read_seconds,
            "read_cpu_seconds": self._read_cpu,
            "rejected": dict(self._rejected),
            "near": None if beat is None else asdict(beat),
        }

    # Plans.

    def publish_plan(self, epoch: int, document: Mapping[str, Any]) -> None:
        """Write a plan for all ranks of the run. A folder that cannot be written to is `trouble`, and no error."""
        path = run_folder(self.path, self.run) / plan_file(epoch)
        content = json.dumps(document, separators=(",", ":")).encode()
        self._voice.keep(path)
        try:
            write_plan(path, content, self.session)
        except OSError as error:
            self._voice.trouble = f"{path}: {error.strerror or error}"

    def read_plan(self, epoch: int) -> dict[str, Any] | None:
        """Give the plan of an epoch; None if it has not been published yet."""
        try:
            return parse_object(read_small_file(run_folder(self.path, self.run) / plan_file(epoch), MAX_PLAN_BYTES))
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Remove all files of this rank, and of the run if no other rank is left. Any number of times; never raises."""
        if self._process == os.getpid():
            self._voice.close()

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
