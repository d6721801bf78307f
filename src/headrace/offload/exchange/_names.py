# SPDX-License-Identifier: Apache-2.0
"""The exchange folder: what lies where and what it is called (spec/exchange.md). Nothing here touches a file.

EXCHANGE/
  RUN/                          one training
    plan-EPOCH.json             written by rank 0, read by the others
    rank-RANK/                  one loader of it; all below is made and removed with this folder
      recipe.json  rows.npy     what to prepare; written once, before `host`
      host                      a cell that the host writes and the offload worker reads
      near                      a cell that the offload worker writes and the host reads
      EPOCH-START-STOP-NUMBER.safetensors
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from headrace.errors import ExchangeError

VERSION = 1
RECIPE = "recipe.json"
ROWS = "rows.npy"
HOST = "host"
NEAR = "near"
SUFFIX = ".safetensors"
TEMPORARY = ".tmp"

BEAT_SECONDS = 0.5
"""How often both sides say that they live."""
SILENT_SECONDS = 3.0
"""After so long without a beat, by its own clock, the host takes the offload worker for dead or frozen."""
TAKEOVER_SECONDS = 5.0
"""After so long without a beat, by its own clock, another offload worker takes a rank over."""
ABANDONED_SECONDS = 60.0
"""After so long without a beat, by its own clock, the offload worker removes what a host has left behind."""

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RANK = re.compile(r"rank-(0|[1-9][0-9]{0,8})")
_BATCH = re.compile(r"([0-9]{1,10})-([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,15})\.safetensors")


class BatchName(NamedTuple):
    """Which batch is meant: one of those into which the positions `start` to `stop` of a rank's epoch are divided."""

    epoch: int
    rank: int
    start: int
    stop: int
    number: int
    """Counted from `start`."""


class Stretch(NamedTuple):
    """The batches that a host wants of a stretch of its epoch: those from `bottom` up to, without, `top`.

    The offload worker makes `top` - 1 first. A host that has read a batch, or makes it itself, lets `top` sink below
    it.
    """

    epoch: int
    start: int
    stop: int
    bottom: int
    top: int

    def wants(self, name: BatchName) -> bool:
        """Whether a batch is one of them."""
        return (name.epoch, name.start, name.stop) == self[:3] and self.bottom <= name.number < self.top


def run_folder(exchange: Path, run: str) -> Path:
    """Where a run's files lie."""
    if not _RUN.fullmatch(run):
        raise ExchangeError(f"a run cannot be called {run!r}: 1 to 64 letters, digits, '-' and '_' are possible")
    return exchange / run


def rank_folder(exchange: Path, run: str, rank: int) -> Path:
    """Where a rank's files lie."""
    return run_folder(exchange, run) / f"rank-{rank}"


def is_run(name: str) -> bool:
    return _RUN.fullmatch(name) is not None


def rank_of(name: str) -> int | None:
    """Give the rank that a folder in a run's is of."""
    match = _RANK.fullmatch(name)
    return None if match is None else int(match[1])


def batch_file(name: BatchName) -> str:
    """Name the file of a prepared batch, in its rank's folder."""
    return f"{name.epoch}-{name.start}-{name.stop}-{name.number}{SUFFIX}"


def batch_of(file: str, rank: int) -> BatchName | None:
    """Read the name of a file; None if it is that of no batch."""
    match = _BATCH.fullmatch(file)
    return None if match is None else BatchName(int(match[1]), rank, *(int(match[at]) for at in (2, 3, 4)))


def plan_file(epoch: int) -> str:
    return f"plan-{epoch}.json"


def digest(content: bytes) -> str:
    """Name a recipe by its bytes."""
    return blake2b(content, digest_size=16).hexdigest()


class Origin(NamedTuple):
    """What a prepared batch must say of itself, beside its name: whose it is and how it was made."""

    run: str
    session: str
    recipe: str
    """Digest of the recipe's file."""

    def labels(self, name: BatchName) -> dict[str, Any]:
        """Say all of it, as a batch's metadata does."""
        return {"version": VERSION, **self._asdict(), **name._asdict()}
