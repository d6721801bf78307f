# SPDX-License-Identifier: Apache-2.0
"""One rank that an offload worker serves: its requests, which batch it needs next, and the batches published for it.

At any time one offload worker holds a rank: the one whose name is in the `near` cell. It checks that before each write.
Two workers that claim a rank at the same moment make the same batches, with the same bits and names, until the next
check; nothing else happens.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import LoaderError
from headrace.loader import PixelMaker
from headrace.loader.supply import PixelBatch, PixelSource, Rows, samples_of, take_pixels
from headrace.offload.exchange._batch_file import (
    LIMITS,
    Arrays,
    BatchFile,
    BatchShapes,
    BatchWriter,
    batch_file,
    is_within,
    name_arrays,
    pack_batch,
)
from headrace.offload.exchange._documents import MALFORMED, Heartbeat, HostRequest, State, parse_object
from headrace.offload.exchange._files import (
    CellReader,
    is_folder,
    opened_folder,
    read_cell_bytes,
    read_small_file,
    remove_file,
    write_cell,
)
from headrace.offload.exchange._folder import remove_abandoned_rank
from headrace.offload.exchange._liveness import is_abandoned, this_process
from headrace.offload.exchange._names import (
    HOST_CELL,
    RECIPE,
    TEMPORARY,
    WORKER_CELL,
    BatchName,
    Origin,
    Stretch,
    batch_of,
    digest,
)
from headrace.records import Dataset
from headrace.transforms import Recipe
from headrace.units import bytes_text

MAX_SAMPLES = 1 << 16
"""Per batch. Memory for its bookkeeping is allocated before anything else of it is known."""
MAX_ADOPTED = 100_000
"""Files that are looked at in a folder that is taken over."""
MAX_RECIPE_BYTES = 1 << 20
# After a claim, a worker waits this long and checks that the cell still has its name.
_CLAIM_SECONDS = 0.05
_LOOK_SECONDS = 0.01
_ABANDONED_CHECK_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_TIMED_BATCHES = 16
# Writing and reading a heartbeat takes time on both sides: new batches are announced together while the host has this
# many to read, at the latest after `_ANNOUNCE_SECONDS`.
_ENOUGH_UNREAD = 4
_ANNOUNCE_SECONDS = 0.05
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RankGone(Exception):
    """The rank's folder was removed, taken over by another offload worker, or created again by another host."""


class RankCells:
    """The two cells of a rank, as an offload worker uses them."""

    def __init__(self, folder: Path, rank: int, worker: str) -> None:
        """Read what the host has published. OSError or ValueError if it is not valid."""
        self.folder, self.rank, self._worker = folder, rank, worker
        self._process = this_process()
        self._host_cell = CellReader(folder / HOST_CELL, HostRequest.from_json)
        self._worker_cell = CellReader(folder / WORKER_CELL, Heartbeat.from_json)
        self._written = b""
        content = read_small_file(folder / RECIPE, MAX_RECIPE_BYTES)
        self.recipe: dict[str, Any] = parse_object(content)
        self.fault: str | None = None
        """Why the host's cell is not valid now, if so."""
        self.request = self._read_request()
        self.origin = Origin(folder.parent.name, self.request.session, digest(content))
        self._beat = 0

    def _read_request(self) -> HostRequest:
        request = self._host_cell.read()
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
        changed = request.stretches != self.request.stretches
        self.request = request
        return changed

    @property
    def is_abandoned(self) -> bool:
        """Whether the host has died without removing its files."""
        return is_abandoned(self.request.process, self._host_cell.silent_seconds)

    def claim(self) -> bool:
        """Take the rank, which no live offload worker has; False if another one takes it at the same time."""
        self._write(state="waiting")
        time.sleep(_CLAIM_SECONDS)
        holder = self._holder()
        return holder is not None and holder.worker == self._worker

    def _holder(self) -> Heartbeat | None:
        """Return the heartbeat of the worker that has the rank; None if there is none, or its cell is not valid."""
        try:
            return self._worker_cell.read()
        except ValueError:
            return None

    def write(self, **figures: Any) -> None:
        """Write a heartbeat with these members. For one thread at a time. RankGone if another worker has the rank."""
        try:
            unchanged = read_cell_bytes(self.folder / WORKER_CELL) == self._written
            holder = None if unchanged else self._holder()
        except FileNotFoundError:
            raise RankGone(f"{self.folder} was removed") from None
        if holder is not None and (holder.worker, holder.session) != (self._worker, self.origin.session):
            raise RankGone(f"{self.folder}: the offload worker {holder.worker} has taken over")
        self._beat += 1
        self._write(**figures)

    def _write(self, **figures: Any) -> None:
        beat = Heartbeat(self.origin.session, self._worker, self._beat, process=self._process, **figures)
        try:
            self._written = write_cell(self.folder / WORKER_CELL, beat.to_json())
        except FileNotFoundError:
            raise RankGone(f"{self.folder} was removed") from None


class BatchMaker:
    """Makes the prepared batches of a recipe, with the same rows, random draws and bits as the loader.

    A prepared batch contains the pixel fields and the rows that they come from. Everything else of a batch (labels,
    boxes, the user's functions) costs the host microseconds and stays there. For one thread at a time.
    """

    def __init__(
        self, dataset: Dataset, recipe: Recipe, *, threads: int = 1, rows: npt.NDArray[np.int64] | None = None
    ) -> None:
        """`rows` is the selection of samples, if the recipe has the digest of one."""
        self._pixels = PixelMaker(dataset, recipe, threads=threads, rows=rows)
        self._gather = self._pixels.dataset.gather
        self._shapes = BatchShapes(self._pixels.dataset, self._pixels.fields, self._pixels.compiled)
        self._source: PixelSource | None = None
        self.fields = self._pixels.fields
        self.batch_size = recipe.batch_size
        """Samples per batch and rank."""
        self.close = self._pixels.close

    def batch_count(self, epoch: int, rank: int, start: int, stop: int) -> int:
        """Return the number of batches in a rank's share of samples [start, stop) of an epoch."""
        return len(self._pixels.batches(epoch, rank, start, stop))

    def begin(self, name: BatchName) -> PendingBatch:
        """Submit a batch to the threads and return at once. LoaderError if it is too large, IndexError if none."""
        if self.batch_size > MAX_SAMPLES:
            raise LoaderError(f"batch_size must be at most {MAX_SAMPLES} to be prepared; got {self.batch_size}")
        batches = self._pixels.batches(name.epoch, name.rank, name.start, name.stop)
        rows, _ = samples_of(batches, name.number, self._gather)
        shape = self._shapes.of(rows)
        if shape is not None and shape.limits.n_bytes > LIMITS.n_bytes:
            raise LoaderError(
                f"a prepared batch must have at most {LIMITS.n_bytes} bytes; batch {name.number} of epoch {name.epoch} "
                f"has {shape.n_bytes}: use smaller batches or images"
            )
        self._source = self._source or self._pixels.source
        return PendingBatch(name, self.fields, rows, self._source.submit(rows, name.epoch))


class PendingBatch:
    """A batch in progress."""

    def __init__(self, name: BatchName, fields: tuple[str, ...], rows: Rows, batch: PixelBatch) -> None:
        self.name, self._fields, self._rows, self._batch = name, fields, rows, batch
        self.wait = batch.wait

    def take(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a batch that is done; LoaderError if a sample could not be loaded."""
        failures = self._batch.failures()
        if failures:
            position, field, _, kind, message = min(failures)
            raise LoaderError(
                f"batch {self.name.number} of epoch {self.name.epoch}, rank {self.name.rank}: field "
                f"{self._fields[field]!r} of row {int(self._rows[position])}: {kind}: {message}"
            )
        return name_arrays(dict(zip(self._fields, take_pixels(self._batch), strict=True)), self._rows)


class PublishedBatches:
    """The batch files of one rank, for the offload worker that owns them. For one thread.

    The last file that is not wanted any more keeps a temporary name, and the next batch is written over it. That saves
    the file system freeing and finding blocks.
    """

    def __init__(self, folder: Path, rank: int, token: str) -> None:
        self._folder = folder
        self._temporary = f".batch.{token}{TEMPORARY}"
        self._writer = BatchWriter()
        self.held: dict[BatchName, int] = {}
        """The bytes of each published batch."""
        # Take over what an earlier offload worker has published, and remove its temporary files.
        with opened_folder(folder, listing=True) as inside, os.scandir(inside) as entries:
            for entry in islice(entries, MAX_ADOPTED):
                name = batch_of(entry.name, rank)
                if name is not None and entry.is_file(follow_symlinks=False):
                    self.held[name] = entry.stat(follow_symlinks=False).st_size
                elif entry.name.startswith(".batch."):
                    remove_file(entry.name, dir_fd=inside)

    @property
    def held_bytes(self) -> int:
        """The bytes of all published batches."""
        return sum(self.held.copy().values())  # a copy: other threads ask too

    def write(self, name: BatchName, content: BatchFile) -> None:
        """Publish a batch: write it under a temporary name, sync, rename. An OSError leaves nothing behind."""
        with opened_folder(self._folder) as folder:
            try:
                self._writer.write(self._temporary, content, dir_fd=folder)
                os.replace(self._temporary, batch_file(name), src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    remove_file(self._temporary, dir_fd=folder)
                raise
        self.held[name] = content.n_bytes

    def keep_only(self, wanted: Callable[[BatchName], bool]) -> None:
        """Remove all batches that are not wanted, but keep the file of the last one as a spare."""
        for name in [name for name in self.held if not wanted(name)]:
            del self.held[name]
            with contextlib.suppress(OSError), opened_folder(self._folder) as folder:
                os.replace(batch_file(name), self._temporary, src_dir_fd=folder, dst_dir_fd=folder)

    def drop_spare(self) -> None:
        """Remove the spare file, to free its space."""
        with contextlib.suppress(OSError), opened_folder(self._folder) as folder:
            remove_file(self._temporary, dir_fd=folder)


def prepared_text(batches: int, n_bytes: int) -> str:
    """Describe what was prepared, for reports."""
    return f"prepared {'1 batch' if batches == 1 else f'{batches} batches'}, {bytes_text(n_bytes)}"


class ServedRank:
    """A rank that this offload worker holds. For the worker's main thread; others may call `figures`."""

    def __init__(self, cells: RankCells, maker: BatchMaker, files: PublishedBatches) -> None:
        self.cells, self.maker, self.files = cells, maker, files
        self._stretches: tuple[Stretch, ...] = ()
        self._published: dict[Stretch, Stretch] = {}
        self._announced = self._published.copy()
        self._announced_batches, self._announced_at = 0, 0.0
        self._complaint = ""
        self._updated = self._checked = self._retry_at = 0.0
        self._begun: float | None = None
        self._times: deque[float] = deque(maxlen=_TIMED_BATCHES)
        self._batch_bytes = max(self.files.held.values(), default=0)
        self.state: State = "waiting"
        self.reason = ""
        self.batches = 0
        self.written_bytes = 0
        self._busy_seconds = 0.0
        self._ahead_bytes = 0
        self._apply_request()

    @property
    def title(self) -> str:
        return f"rank {self.cells.rank} of run {self.cells.folder.parent.name}"

    @property
    def trouble(self) -> str:
        """What is wrong now: with the folder, with the host's request, or with its cell."""
        return self.reason or self._complaint or self.cells.fault or ""

    @property
    def seconds_per_batch(self) -> float | None:
        times = self._times.copy()  # other threads ask too
        return sum(times) / len(times) if times else None

    def update(self, ahead_bytes: int) -> None:
        """Read the host's request, at most every 10 ms. RankGone if there is no host any more."""
        self._ahead_bytes = ahead_bytes
        now = time.monotonic()
        if now - self._updated < _LOOK_SECONDS:
            return
        self._updated = now
        self._read_request()
        if now - self._checked > _ABANDONED_CHECK_SECONDS:
            self._checked = now
            if self.cells.is_abandoned:
                remove_abandoned_rank(self.cells.folder)
                raise RankGone(f"{self.cells.folder}: the host has died")

    def _read_request(self) -> None:
        if self.cells.update():
            self._retry_at = 0.0
            self._apply_request()

    def _apply_request(self) -> None:
        """Remove what the host does not want any more."""
        self._complaint = ""
        self._stretches = tuple(stretch for stretch in self.cells.request.stretches if self._exists(stretch))
        self.files.keep_only(self.wants)
        if not self._stretches:
            self.files.drop_spare()
        self._find_published()

    def wants(self, name: BatchName) -> bool:
        return is_within(name, self._stretches)

    def _exists(self, stretch: Stretch) -> bool:
        """Whether the epoch has such batches: a host could request 2**48 of them."""
        try:
            count = self.maker.batch_count(stretch.epoch, self.cells.rank, stretch.start, stretch.stop)
        except MALFORMED:
            count = 0
        if stretch.top > count:
            self._complaint = f"the host requests batch {stretch.top - 1} of {count}"
        return stretch.top <= count

    def _find_published(self) -> None:
        """Find for each requested stretch the batches that are published, from the top down without a gap."""
        found = {}
        for stretch in self._stretches:
            # The key is the same while the host only lowers the top: then the search continues where it ended.
            key = stretch._replace(top=0)
            last = self._published.get(key, stretch._replace(top=-1))
            mark = last.bottom if stretch.top <= last.top and last.bottom <= stretch.top else stretch.top
            while mark > stretch.bottom and self._name(stretch, mark - 1) in self.files.held:
                mark -= 1
            found[key] = stretch._replace(bottom=mark)
        self._published = found

    def _name(self, stretch: Stretch, number: int) -> BatchName:
        return BatchName(stretch.epoch, self.cells.rank, stretch.start, stretch.stop, number)

    # What to make.

    def next_name(self, in_progress: Collection[BatchName]) -> BatchName | None:
        """Return the batch to make next; None if there is none, or no room for it."""
        if time.monotonic() < self._retry_at:
            return None
        wanted = self._missing(in_progress) if self._has_room(len(in_progress)) else iter(())
        name = next(wanted, None)
        if name is not None:
            self._begun = self._begun or time.monotonic()
            self.state = "working"
        elif not in_progress:
            self._begun = None  # waiting for the host does not count as time of a batch
            self.state, self.reason = "waiting", ""
        return name

    def _has_room(self, in_progress: int) -> bool:
        if not self.files.held and not in_progress:
            return True
        coming = (in_progress + 1) * self._batch_bytes  # unknown, 0, before the first batch
        return coming > 0 and self.files.held_bytes + coming <= self._ahead_bytes

    def _missing(self, in_progress: Collection[BatchName]) -> Iterator[BatchName]:
        for stretch in self._stretches:
            published = self._published[stretch._replace(top=0)]
            for number in range(published.bottom - 1, stretch.bottom - 1, -1):
                name = self._name(stretch, number)
                if name not in in_progress and name not in self.files.held:
                    yield name

    def publish(self, name: BatchName, batch: Arrays, declined: str | None = None) -> int:
        """Write a batch and return its size, or 0 if it is not wanted any more. OSError if that fails; RankGone."""
        self._read_request()
        if not self.wants(name):
            return 0
        try:
            content = pack_batch(name, self.cells.origin, batch, declined)
        except ValueError as error:
            content = pack_batch(name, self.cells.origin, {}, str(error))
        self.files.write(name, content)
        self.state, self.reason = "working", ""
        self.written_bytes += content.n_bytes
        if declined is None or not self._batch_bytes:
            self._batch_bytes = content.n_bytes
        self._find_published()
        self.batches += 1
        now = time.monotonic()
        if self._begun is not None:
            self._busy_seconds += now - self._begun
            if self.batches > 1:  # the first includes the warm-up
                self._times.append(now - self._begun)
        self._begun = now
        return content.n_bytes

    def fail(self, error: OSError) -> None:
        """Wait before the next attempt: the folder is full or cannot be used. RankGone if it does not exist."""
        if not is_folder(self.cells.folder):
            raise RankGone(f"{self.cells.folder} was removed") from None
        self.files.drop_spare()
        self.state = "full" if error.errno in _DISK_FULL else "trouble"
        self.reason = f"{self.cells.folder}: {error.strerror or error}"
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        self._begun = None

    # What to announce.

    @property
    def must_announce(self) -> bool:
        """Whether to write a heartbeat now, because of batches that the host does not know about.

        At once if the host may be waiting for one, else for several batches together.
        """
        if self.batches == self._announced_batches:
            return False
        if time.monotonic() - self._announced_at >= _ANNOUNCE_SECONDS or not self._stretches:
            return True
        first = self._stretches[0]
        known = self._announced.get(first._replace(top=0))
        return known is None or first.top - known.bottom < _ENOUGH_UNREAD

    def figures(self) -> dict[str, Any]:
        """Return the members of a heartbeat that is written now."""
        self._announced_batches, self._announced_at = self.batches, time.monotonic()
        self._announced = self._published  # after the count: the main thread may publish a batch meanwhile
        return {
            "state": self.state,
            "reason": self.trouble,
            "marks": tuple(self._announced.values()),
            "batches": self.batches,
            "busy_seconds": self._busy_seconds,
            "seconds_per_batch": self.seconds_per_batch,
            "ahead_bytes": self._ahead_bytes,
            "held_bytes": self.files.held_bytes,
        }
