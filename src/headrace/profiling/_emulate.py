# SPDX-License-Identifier: Apache-2.0
"""A smaller machine than this one: fewer cores by affinity, slower storage by waiting."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.errors import ProfileError
from headrace.loader import cores as usable_cores
from headrace.planning import parse_emulation


@dataclass(frozen=True, slots=True)
class Emulation:
    """What is emulated; None is as it is."""

    storage_rate: float | None = None
    """Bytes a second."""
    cores: int | None = None
    text: str | None = None
    """As the user wrote it."""

    @classmethod
    def parse(cls, text: str | None) -> Emulation:
        """Read `storage=200MB/s,cores=2`."""
        if text is None:
            return cls()
        found = parse_emulation(text)
        storage, cores = found.get("storage_rate"), found.get("cores")
        return cls(None if storage is None else float(storage), None if cores is None else int(cores), text)


@contextmanager
def on_cores(wanted: int | None) -> Iterator[int]:
    """Hold this thread, and what it starts, to some of the cores that it may use; gives how many it then has."""
    there = usable_cores()
    if wanted is None:
        yield there
        return
    if not 1 <= wanted <= there:
        raise ProfileError(
            f"{wanted} cores cannot be emulated on a machine that has {there} for this process; "
            f"`headrace plan --what-if` predicts larger ones"
        )
    if not hasattr(os, "sched_setaffinity"):
        yield wanted  # then the number of workers is all that can be held down
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:wanted])
    try:
        yield wanted
    finally:
        os.sched_setaffinity(0, before)


def core_counts(cores: int, asked: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """From one core to all, doubling; or those asked for that there are."""
    if asked:
        chosen = sorted({n for n in asked if n <= cores})
        if not chosen or min(asked) < 1:
            raise ProfileError(f"cores {', '.join(map(str, asked))} were asked for, and this process may use {cores}")
        return tuple(chosen)
    doubled = []
    n = 1
    while n < cores:
        doubled.append(n)
        n *= 2
    return (*doubled, cores)
