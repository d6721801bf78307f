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

from headrace.offload.exchange._documents import (
    ABANDONED_SECONDS,
    HOST_CELL,
    Heartbeat,
    HostRequest,
    short_text,
)
from headrace.offload.exchange._files import Refused, SilenceTimer, read_cell
from headrace.offload.exchange._folder import MAX_LISTED, rank_folders, remove_abandoned_rank, unfinished_folders
from headrace.offload.worker._checks import is_abandoned, is_held
from headrace.offload.worker._rank import BatchMaker, RankCells, RankGone, ServedRank
from headrace.records import open_dataset
from headrace.transforms import Recipe

IDLE_SECONDS = 0.2
BUSY_SECONDS = 1.0
MAX_RECIPES = 16
"""Recipes at a time: each has threads, memory and an open dataset of its own."""
MAX_RANKS = 1024
"""Ranks that one offload worker serves at a time."""
_MAX_ROWS_PER_SAMPLE = 16
_SEARCH_SECONDS = 0.25
_FAULT_SECONDS = 5.0
_MAX_REMEMBERED = 4096


class Makers:
    """The makers of an offload worker: created for the first rank with a recipe, closed after the last."""

    def __init__(self, dataset: Path, threads: int) -> None:
        self._path, self._threads = dataset, threads
        # A selection may repeat samples. One that is far longer than the dataset is treated as an error.
        self.max_rows = max(1 << 20, _MAX_ROWS_PER_SAMPLE * len(open_dataset(dataset)))
        self._makers: dict[str, tuple[BatchMaker, int]] = {}

    def take(self, cells: RankCells) -> BatchMaker:
        """Return the maker for a rank. HeadraceError, ValueError or OSError if this dataset is not the recipe's."""
        key = cells.origin.recipe
        if key in self._makers:
            maker, users = self._makers[key]
        elif len(self._makers) >= MAX_RECIPES:
            raise ValueError(f"an offload worker serves at most {MAX_RECIPES} recipes: start another worker")
        else:
            recipe = Recipe.from_json(json.dumps(cells.recipe))
            maker = BatchMaker(open_dataset(self._path), recipe, threads=self._threads, rows=cells.rows)
            users = 0
        self._makers[key] = (maker, users + 1)
        return maker

    def give_back(self, cells: RankCells) -> None:
        key = cells.origin.recipe
        maker, users = self._makers[key]
        if users > 1:
            self._makers[key] = (maker, users - 1)
        else:
            del self._makers[key]
            maker.close()

    def close(self) -> None:
        makers, self._makers = self._makers, {}
        for maker, _ in makers.values():
            maker.close()


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
        self._refused: dict[str, str] = {}
        self._faults: dict[Path, tuple[float, str]] = {}
        self._host_silence: dict[Path, SilenceTimer] = {}
        self._worker_silence: dict[Path, SilenceTimer] = {}
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
        for folder, rank in self._rotated(ranks):
            if folder not in served and (self._ranks is None or rank in self._ranks):
                found = self._try(folder, rank) if len(served) < MAX_RANKS else None
                self._last = folder
                if found is not None:
                    yield found
                if time.monotonic() - begun > _SEARCH_SECONDS:
                    self.next_at = time.monotonic() + _SEARCH_SECONDS  # then continue with the others
                    break
        self._clean_up(unfinished, {folder for folder, _ in ranks} | set(unfinished))

    def _clean_up(self, unfinished: list[Path], existing: set[Path]) -> None:
        """Remove folders that were never finished, and forget those that are gone."""
        for folder in unfinished:
            if self._host_silence.setdefault(folder, SilenceTimer()).seconds > ABANDONED_SECONDS:
                remove_abandoned_rank(folder)
        for remembered in (self._host_silence, self._worker_silence, self._faults):
            for folder in remembered.keys() - existing:
                del remembered[folder]

    def _rotated(self, ranks: list[tuple[Path, int]]) -> list[tuple[Path, int]]:
        """Begin after the rank at which the last search ended."""
        last = self._last
        at = 0 if last is None else next((i for i, (folder, _) in enumerate(ranks) if folder > last), 0)
        return ranks[at:] + ranks[:at]

    def _try(self, folder: Path, rank: int) -> ServedRank | None:
        """Claim a rank if it needs a worker; an error is reported and remembered."""
        until, why = self._faults.get(folder, (0.0, ""))
        if time.monotonic() < until:
            self.trouble = why
            return None
        try:
            found = self._claim_if_free(folder, rank)
        except (RankGone, FileNotFoundError):
            return None
        except Exception as error:  # noqa: BLE001 - a forged rank can fail in any way
            self._remember(folder, error)
            return None
        if until and found is not None:
            self._faults.pop(folder, None)
        return found

    def _remember(self, folder: Path, error: Exception) -> None:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        where = Path(error.filename) if isinstance(error, Refused) else folder
        self.trouble = short_text(f"{folder if where.is_absolute() else folder / where.name}: {why}")
        if self._faults.get(folder, (0.0, ""))[1] != self.trouble:
            self._report(f"ignored {self.trouble}")
        self._faults[folder] = (time.monotonic() + _FAULT_SECONDS, self.trouble)

    def _claim_if_free(self, folder: Path, rank: int) -> ServedRank | None:
        document = read_cell(folder / HOST_CELL)
        request = None if document is None else HostRequest.from_json(document)
        if request is None or request.closed:
            return None
        host = self._host_silence.setdefault(folder, SilenceTimer())
        host.note((request.session, request.beat))
        if is_abandoned(request.process, host.seconds):
            remove_abandoned_rank(folder)
            return None
        silence = self._worker_silence.setdefault(folder, SilenceTimer())
        if is_held(folder, self._worker, silence):
            return None
        if request.session in self._refused:
            self.trouble = self._refused[request.session]
            return None
        return self._claim(folder, rank, silence)

    def _claim(self, folder: Path, rank: int, silence: SilenceTimer) -> ServedRank | None:
        cells = RankCells(folder, rank, self._worker, self._makers.max_rows)
        if not cells.claim(silence):
            return None
        try:
            maker = self._makers.take(cells)
        except Exception as error:  # noqa: BLE001 - a forged recipe can fail in any way
            self.refuse(cells, str(error) or type(error).__name__)
            return None
        try:
            return ServedRank(cells, maker, self._worker)
        except BaseException:
            self._makers.give_back(cells)
            raise

    def refuse(self, cells: RankCells, why: str) -> None:
        """Report why a rank is not served, also to its host. A worker with another dataset may take it."""
        while len(self._refused) >= _MAX_REMEMBERED:
            del self._refused[next(iter(self._refused))]
        self._refused[cells.origin.session] = self.trouble = short_text(f"refused {cells.folder}: {why}")
        self._report(self.trouble)
        cells.write(Heartbeat("", "", 0, "refused", reason=why))
