# SPDX-License-Identifier: Apache-2.0
"""Finds ranks that want an offload worker: now and then the exchange is listed, and each rank in it looked at.

What is wrong with one rank stays with it: it is reported once, and looked at again only after a while. A look takes no
longer than a fraction of a second, however many ranks there are, so that those that are served already go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

from headrace.offload._untrusted import printable
from headrace.offload.exchange._files import Refused
from headrace.offload.exchange._folder import MAX_LISTED, half_made_folders, rank_folders, sweep_rank
from headrace.offload.exchange._heartbeat import SilenceTimer
from headrace.offload.exchange._names import ABANDONED_SECONDS, TAKEOVER_SECONDS
from headrace.offload.exchange._status import Heartbeat
from headrace.offload.exchange._worker import Gone, WorkerRank, is_abandoned, read_near, read_request
from headrace.offload.worker._makers import Makers
from headrace.offload.worker._served import Served

IDLE_SECONDS = 0.2
BUSY_SECONDS = 1.0
MAX_RANKS = 1024
"""Ranks that one offload worker serves at a time."""
_LOOK_SECONDS = 0.25
_FAULT_SECONDS = 5.0
_MAX_REMEMBERED = 4096


class Search:
    """Looks for ranks that nobody serves, takes them, and removes those whose host has died."""

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
        self._next = 0.0
        self._last: Path | None = None
        self._refused: dict[str, str] = {}
        self._faults: dict[Path, tuple[float, str]] = {}
        self._hosts: dict[Path, SilenceTimer] = {}
        self._holders: dict[Path, SilenceTimer] = {}
        self.trouble = ""

    def look(self, served: Collection[Path]) -> Iterator[Served]:
        """Return the ranks that were taken, if it is time to look."""
        begun = time.monotonic()
        if begun < self._next:
            return
        self._next = begun + (BUSY_SECONDS if served else IDLE_SECONDS)
        self.trouble = "" if self._exchange.is_dir() else f"{self._exchange}: there is no such folder (yet)"
        try:
            ranks = list(islice(rank_folders(self._exchange), MAX_LISTED))
            half_made = list(islice(half_made_folders(self._exchange), MAX_LISTED))
        except OSError as error:
            self.trouble = f"{self._exchange}: {error.strerror or error}"
            return
        for folder, rank in self._in_turn(ranks):
            if folder not in served and (self._ranks is None or rank in self._ranks):
                found = self._try(folder, rank) if len(served) < MAX_RANKS else None
                self._last = folder
                if found is not None:
                    yield found
                if time.monotonic() - begun > _LOOK_SECONDS:
                    self._next = time.monotonic() + _LOOK_SECONDS  # the others follow soon
                    break
        self._clean_up(half_made, {folder for folder, _ in ranks} | set(half_made))

    def _clean_up(self, half_made: list[Path], there: set[Path]) -> None:
        """Remove folders that were never finished, and forget those that are gone."""
        for folder in half_made:
            if self._hosts.setdefault(folder, SilenceTimer()).seconds > ABANDONED_SECONDS:
                sweep_rank(folder)
        for remembered in (self._hosts, self._holders, self._faults):
            for folder in remembered.keys() - there:
                del remembered[folder]

    def _in_turn(self, ranks: list[tuple[Path, int]]) -> list[tuple[Path, int]]:
        """Begin behind the rank at which the last look has ended."""
        last = self._last
        at = 0 if last is None else next((i for i, (folder, _) in enumerate(ranks) if folder > last), 0)
        return ranks[at:] + ranks[:at]

    def _try(self, folder: Path, rank: int) -> Served | None:
        """Consider a rank; what is wrong with one is no harm to the others."""
        until, why = self._faults.get(folder, (0.0, ""))
        if time.monotonic() < until:
            self.trouble = why
            return None
        try:
            found = self._consider(folder, rank)
        except (Gone, FileNotFoundError):
            return None
        except Exception as error:  # noqa: BLE001 - a forged rank can fail in any way
            self._note(folder, error)
            return None
        if until and found is not None:
            self._faults.pop(folder, None)
        return found

    def _note(self, folder: Path, error: Exception) -> None:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        where = Path(error.filename) if isinstance(error, Refused) else folder
        self.trouble = printable(f"{folder if where.is_absolute() else folder / where.name}: {why}")
        if self._faults.get(folder, (0.0, ""))[1] != self.trouble:
            self._report(f"ignored {self.trouble}")
        self._faults[folder] = (time.monotonic() + _FAULT_SECONDS, self.trouble)

    def _consider(self, folder: Path, rank: int) -> Served | None:
        request = read_request(folder)
        if request is None or request.closed:
            return None
        host = self._hosts.setdefault(folder, SilenceTimer())
        host.note((request.session, request.beat))
        if is_abandoned(request.process, host.seconds):
            sweep_rank(folder)
            return None
        holders = self._holders.setdefault(folder, SilenceTimer())
        if self._is_held(folder, holders):
            return None
        if request.session in self._refused:
            self.trouble = self._refused[request.session]
            return None
        return self._take(folder, rank, holders)

    def _is_held(self, folder: Path, watch: SilenceTimer) -> bool:
        """Whether another offload worker that lives has the rank."""
        holder = read_near(folder)
        if holder is None or holder.worker == self._worker:
            return False
        watch.note((holder.worker, holder.beat))
        return not holder.is_vacant and watch.seconds < TAKEOVER_SECONDS

    def _take(self, folder: Path, rank: int, watch: SilenceTimer) -> Served | None:
        near = WorkerRank(folder, rank, self._worker, self._makers.max_rows)
        if not near.claim(watch):
            return None
        try:
            maker = self._makers.take(near)
        except Exception as error:  # noqa: BLE001 - a forged recipe can fail in any way
            why = str(error) or type(error).__name__
            self.refuse(near, why)
            return None
        try:
            return Served(near, maker, self._worker)
        except BaseException:
            self._makers.give_back(near)
            raise

    def refuse(self, near: WorkerRank, why: str) -> None:
        """Report why a rank is not served, to its host too. Another worker, with another dataset, may take it."""
        while len(self._refused) >= _MAX_REMEMBERED:
            del self._refused[next(iter(self._refused))]
        self._refused[near.origin.session] = self.trouble = printable(f"refused {near.folder}: {why}")
        self._report(self.trouble)
        near.say(Heartbeat("", "", 0, "refused", reason=why))
