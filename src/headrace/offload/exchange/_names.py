# SPDX-License-Identifier: Apache-2.0
"""The names of an exchange (spec/exchange.md §1): of its files, of batches, of runs and sessions."""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from headrace.errors import ExchangeError

VERSION = 1
RECIPE = "recipe.json"
ROWS = "rows.npy"
HOST_CELL = "host"
WORKER_CELL = "near"
SUFFIX = ".safetensors"
TEMPORARY = ".tmp"

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Of a run, a session or an offload worker."""
_RANK = re.compile(r"rank-(0|[1-9][0-9]{0,8})")
_BATCH = re.compile(r"([0-9]{1,10})-([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,15})\.safetensors")


class BatchName(NamedTuple):
    """One of the batches into which positions `start` to `stop` of a rank's epoch are divided."""

    epoch: int
    rank: int
    start: int
    stop: int
    number: int  # counted from `start`


class Stretch(NamedTuple):
    """Batches of a stretch of an epoch: numbers in [bottom, top).

    A host requests stretches. The offload worker makes `top` - 1 first, and publishes which batches are ready as
    stretches too. A host lowers `top` below each batch that it has read or makes itself.
    """

    epoch: int
    start: int
    stop: int
    bottom: int
    top: int


class Origin(NamedTuple):
    """Which run, session and recipe a prepared batch belongs to."""

    run: str
    session: str
    recipe: str  # digest of the recipe's file


def run_folder(exchange: Path, run: str) -> Path:
    if not NAME_PATTERN.fullmatch(run):
        raise ExchangeError(f"the name of a run must be 1 to 64 letters, digits, '-' and '_'; got {run!r}")
    return exchange / run


def rank_folder(exchange: Path, run: str, rank: int) -> Path:
    return run_folder(exchange, run) / f"rank-{rank}"


def plan_file(epoch: int) -> str:
    return f"plan-{epoch}.json"


def rank_of(name: str) -> int | None:
    """Return the rank from a folder's name, or None."""
    match = _RANK.fullmatch(name)
    return None if match is None else int(match[1])


def batch_of(file: str, rank: int) -> BatchName | None:
    """Return the batch from a file's name, or None."""
    match = _BATCH.fullmatch(file)
    return None if match is None else BatchName(int(match[1]), rank, *(int(match[at]) for at in (2, 3, 4)))


def digest(content: bytes) -> str:
    """Return the digest that identifies a recipe."""
    return blake2b(content, digest_size=16).hexdigest()


def new_token() -> str:
    """Return a new random name for a process or a session."""
    return os.urandom(8).hex()
