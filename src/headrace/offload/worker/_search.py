# SPDX-License-Identifier: Apache-2.0
"""Finds ranks that need an offload worker by listing the exchange folder at intervals.

An error in one rank affects no other: it is reported once, and the rank is tried again after 5 s. One search takes at
most a fraction of a second, however many ranks there are, so that the ranks being served do not wait.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

from headrace.loader.supply import Rows
from headrace.offload.exchange._documents import Heartbeat, HostRequest, short_text
from headrace.offload.exchange._files import CellReader, Refused
from headrace.offload.exchange._folder import (
    MAX_LISTED,
    max_rows,
    rank_folders,
    read_rows,
    remove_abandoned_rank,
    unfinished_folders,
)
from headrace.offload.exchange._liveness import ABANDONED_SECONDS, TAKEOVER_SECONDS, is_abandoned
from headrace.offload.exchange._names import HOST_CELL, ROWS, WORKER_CELL
from headrace.offload.worker._rank import BatchMaker, PublishedBatches, RankCells, RankGone, ServedRank
from headrace.records import Manifest, open_dataset
from headrace.records.versions import address
from headrace.transforms import Recipe

IDLE_SECONDS = 0.2
BUSY_SECONDS = 1.0
MAX_RECIPES = 16
"""Recipes at a time: each has threads, memory and an open dataset of its own."""
MAX_RANKS = 1024
"""Ranks that one offload worker serves at a time."""
_SEARCH_SECONDS = 0.25
_FAULT_SECONDS = 5.0


class Makers:
    """The makers of an offload worker, one per recipe: created for its first rank, closed after the last."""

    def __init__(self, dataset: Path, threads: int) -> None:
        self._path, self._threads = dataset, threads
        self._max_rows = max_rows(len(open_dataset(dataset)))
        self._makers: dict[str, BatchMaker] = {}

    def read_rows(self, cells: RankCells) -> Rows | None:
        """Read the selection of a rank whose recipe is new. ValueError or OSError if it is not valid."""
        return None if cells.origin.recipe in self._makers else read_rows(cells.folder / ROWS, self._max_rows)

    def find(self, cells: RankCells, rows: Rows | None) -> BatchMaker:
        """Return the maker for a rank. HeadraceError, ValueError or OSError if this dataset is not the recipe's."""
        key = cells.origin.recipe
        if key not in self._makers:
            if len(self._makers) >= MAX_RECIPES:
                raise ValueError(f"an offload worker serves at most {MAX_RECIPES} recipes: start another worker")
            recipe = Recipe.from_json(json.dumps(cells.recipe))
            dataset = open_dataset(self._path)
            if dataset.fingerprint != recipe.fingerprint:  # the loader may have another version of it
                found = Manifest.find(dataset.path, recipe.fingerprint)
                dataset = dataset if found is None else open_dataset(address(dataset.path, found.number))
            self._makers[key] = BatchMaker(dataset, recipe, threads=self._threads, rows=rows)
        return self._makers[key]

    def keep_only(self, used: Collection[BatchMaker]) -> None:
        """Close the makers that no rank uses."""
        for key, maker in list(self._makers.items()):
            if maker not in used:
                del self._makers[key]
                maker.close()


class KnownRank:
    """What earlier searches have found out about a rank's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host_cell = CellReader(folder / HOST_CELL, HostRequest.from_json)
        self.worker_cell = CellReader(folder / WORKER_CELL, Heartbeat.from_json)
        self.retry_at = 0.0
        self.trouble = ""
        """Why it could not be served, if so."""
        self.refused = ""
        """The session that was refused, if one was."""

    def is_held(self, worker: str) -> bool:
        """Whether another live offload worker has the rank."""
        try:
            holder = self.worker_cell.read()
        except ValueError:
            return False
        if holder is None or holder.worker == worker or holder.is_vacant:
            return False
        return self.worker_cell.silent_seconds < TAKEOVER_SECONDS


class RankSearch:
    """Finds and claims ranks that no worker serves, and removes those whose host has died."""

    def __init__(
        self,
        exchange: Path,
        worker: str,
        makers: Makers,
        ranks: Collection[int] | None,
        report: Callable[[str], None],
    ) -> None:
        self._exchange, self._worker, self._makers, self._ranks = exchange, worker, makers, ranks
        self._report = report
        self.next_at = 0.0
        """When to search again, by the monotonic clock."""
        self._last: Path | None = None
        self._known: dict[Path, KnownRank] = {}
        self.trouble = ""

    def find(self, served: Collection[Path]) -> Iterator[ServedRank]:
        """Search once and yield the ranks that were claimed."""
        begun = time.monotonic()
        self.next_at = begun + (BUSY_SECONDS if served else IDLE_SECONDS)
        self.trouble = "" if self._exchange.is_dir() else f"{self._exchange}: the folder does not exist (yet)"
        try:
            ranks = list(islice(rank_folders(self._exchange), MAX_LISTED))
            unfinished = list(islice(unfinished_folders(self._exchange), MAX_LISTED))
        except OSError as error:
            self.trouble = f"{self._exchange}: {error.strerror or error}"
            return
        existing = [*(folder for folder, _ in ranks), *unfinished]
        self._known = {folder: self._known.get(folder) or KnownRank(folder) for folder in existing}
        for folder in unfinished:
            if self._known[folder].host_cell.silent_seconds > ABANDONED_SECONDS:
                remove_abandoned_rank(folder)
        for folder, rank in self._rotated(ranks):
            if folder not in served and (self._ranks is None or rank in self._ranks):
                found = self._try(folder, rank) if len(served) < MAX_RANKS else None
                self._last = folder
                if found is not None:
                    yield found
                if time.monotonic() - begun > _SEARCH_SECONDS:
                    self.next_at = time.monotonic() + _SEARCH_SECONDS  # then continue with the others
                    break

    def _rotated(self, ranks: list[tuple[Path, int]]) -> list[tuple[Path, int]]:
        """Begin after the rank at which the last search ended."""
        last = self._last
        at = 0 if last is None else next((i for i, (folder, _) in enumerate(ranks) if folder > last), 0)
        return ranks[at:] + ranks[:at]

    def _try(self, folder: Path, rank: int) -> ServedRank | None:
        """Claim a rank if it needs a worker; an error is reported and remembered."""
        known = self._known.setdefault(folder, KnownRank(folder))
        if time.monotonic() < known.retry_at:
            self.trouble = known.trouble
            return None
        try:
            return self._claim_if_free(rank, known)
        except (RankGone, FileNotFoundError):
            return None
        except Exception as error:  # noqa: BLE001 - a forged rank can fail in any way
            why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            where = Path(error.filename) if isinstance(error, Refused) else folder
            self.trouble = short_text(f"{folder if where.is_absolute() else folder / where.name}: {why}")
            if known.trouble != self.trouble:
                self._report(f"ignored {self.trouble}")
            known.retry_at, known.trouble = time.monotonic() + _FAULT_SECONDS, self.trouble
            return None

    def _claim_if_free(self, rank: int, known: KnownRank) -> ServedRank | None:
        request = known.host_cell.read()
        if request is None or request.closed:
            return None
        if is_abandoned(request.process, known.host_cell.silent_seconds):
            remove_abandoned_rank(known.folder)
            return None
        if known.is_held(self._worker):
            return None
        if request.session == known.refused:
            self.trouble = known.trouble
            return None
        return self._claim(rank, known)

    def _claim(self, rank: int, known: KnownRank) -> ServedRank | None:
        cells = RankCells(known.folder, rank, self._worker)
        rows = self._makers.read_rows(cells)
        if known.is_held(self._worker) or not cells.claim():  # reading a large selection may have taken long
            return None
        files = PublishedBatches(known.folder, rank, self._worker)
        try:
            maker = self._makers.find(cells, rows)
        except Exception as error:  # noqa: BLE001 - a forged recipe can fail in any way
            self.refuse(cells, str(error) or type(error).__name__)
            return None
        known.trouble = ""
        return ServedRank(cells, maker, files)

    def refuse(self, cells: RankCells, why: str) -> None:
        """Report to the user and to the host why a rank is not served. A worker with another dataset may take it."""
        known = self._known.setdefault(cells.folder, KnownRank(cells.folder))
        known.refused = cells.origin.session
        known.trouble = self.trouble = short_text(f"refused {cells.folder}: {why}")
        self._report(self.trouble)
        cells.write(state="refused", reason=why)
