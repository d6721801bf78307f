# SPDX-License-Identifier: Apache-2.0
"""Finds ranks that want a near worker: now and then the exchange folder is listed, and each rank in it looked at."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.prongs._exchange import ABANDONED_SECONDS, TAKEOVER_SECONDS
from headrace.prongs._exchange_folder import half_made_folders, rank_folders, sweep_rank
from headrace.prongs._exchange_near import Gone, NearRank, is_abandoned, read_near, read_wish
from headrace.prongs._exchange_status import Heartbeat
from headrace.prongs._exchange_voice import Watch
from headrace.prongs.worker._maker import Makers
from headrace.prongs.worker._served import Served

IDLE_SECONDS = 0.2
BUSY_SECONDS = 1.0


class Search:
    """Looks for ranks that nobody serves, takes them, and removes those whose host has died."""

    def __init__(self, exchange: Path, worker: str, makers: Makers, ranks: Collection[int] | None) -> None:
        self._exchange, self._worker, self._makers, self._ranks = exchange, worker, makers, ranks
        self._next = 0.0
        self._refused: dict[str, str] = {}
        self._hosts: dict[Path, Watch] = {}
        self._holders: dict[Path, Watch] = {}
        self.trouble = ""

    def look(self, served: Collection[Path]) -> Iterator[Served]:
        """Give the ranks that were taken, if it is time to look."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (BUSY_SECONDS if served else IDLE_SECONDS)
        self.trouble = "" if self._exchange.is_dir() else f"{self._exchange}: there is no such folder (yet)"
        try:
            ranks, half_made = list(rank_folders(self._exchange)), list(half_made_folders(self._exchange))
        except OSError as error:
            self._note(self._exchange, error)
            return
        for folder, rank in ranks:
            if folder not in served and (self._ranks is None or rank in self._ranks):
                found = self._try(folder, rank)
                if found is not None:
                    yield found
        for folder in half_made:
            if self._hosts.setdefault(folder, Watch()).seconds > ABANDONED_SECONDS:
                sweep_rank(folder)
        for watches in (self._hosts, self._holders):
            for folder in watches.keys() - {folder for folder, _ in ranks} - set(half_made):
                del watches[folder]

    def _try(self, folder: Path, rank: int) -> Served | None:
        """Consider a rank; what is wrong with one is no harm to the others."""
        try:
            return self._consider(folder, rank)
        except (Gone, FileNotFoundError):
            return None
        except (OSError, ValueError) as error:
            self._note(folder, error)
            return None

    def _note(self, path: Path, error: Exception) -> None:
        self.trouble = f"{path}: {getattr(error, 'strerror', None) or error}"

    def _consider(self, folder: Path, rank: int) -> Served | None:
        wish = read_wish(folder)
        if wish is None or wish.closed:
            return None
        host = self._hosts.setdefault(folder, Watch())
        host.note((wish.session, wish.beat))
        if is_abandoned(wish.process, host.seconds):
            sweep_rank(folder)
            return None
        holders = self._holders.setdefault(folder, Watch())
        if self._is_held(folder, holders):
            return None
        if wish.session in self._refused:
            self.trouble = self._refused[wish.session]
            return None
        return self._take(folder, rank, holders)

    def _is_held(self, folder: Path, watch: Watch) -> bool:
        """Whether another near worker that lives has the rank."""
        holder = read_near(folder)
        if holder is None or holder.worker == self._worker:
            return False
        watch.note((holder.worker, holder.beat))
        return not holder.is_vacant and watch.seconds < TAKEOVER_SECONDS

    def _take(self, folder: Path, rank: int, watch: Watch) -> Served | None:
        near = NearRank(folder, rank, self._worker)
        if not near.claim(watch):
            return None
        try:
            maker = self._makers.take(near)
        except (HeadraceError, OSError, TypeError, ValueError) as error:
            self._refuse(near, str(error))
            return None
        try:
            return Served(near, maker, self._worker)
        except BaseException:
            self._makers.give_back(near)
            raise

    def _refuse(self, near: NearRank, why: str) -> None:
        """Tell the host why its recipe cannot be followed. Another near worker, with another dataset, may take it."""
        self._refused[near.origin.session] = self.trouble = f"refused {near.folder}: {why}"
        near.say(Heartbeat("", "", 0, "refused", reason=why))
