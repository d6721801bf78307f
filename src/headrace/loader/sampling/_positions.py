# SPDX-License-Identifier: Apache-2.0
"""Samplers whose epoch is one list of units, divided among ranks as the loader's own order is.

A unit is a fixed number of samples that stay together on one rank, in one batch. State is how many samples came, so an
epoch continues with any batch size and world size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from headrace.loader.order._order import EpochPlan, Positions
from headrace.loader.sampling._protocol import (
    EpochRequest,
    EpochSamples,
    Indices,
    OpenSampler,
    Progress,
    Repeats,
    progress_count,
)


class UnitOrder(Protocol):
    """Which samples each unit of an epoch has: a pure function of epoch and position."""

    n: int
    """Units per epoch."""
    unit: int
    """Samples per unit."""

    def take(self, epoch: int, positions: Positions) -> tuple[Indices, Repeats]:
        """Return (samples of these units one after the other, which of them are repeats or None)."""


class UnitSamples(EpochSamples):
    """The batches of one rank: its units, computed for some thousand positions at a time."""

    def __init__(
        self, order: UnitOrder, request: EpochRequest, stats: Callable[[int], Mapping[str, Any]] | None = None
    ) -> None:
        if request.batch_size % order.unit:
            raise ValueError(
                f"batch_size must be a multiple of {order.unit}, the samples that stay together; "
                f"got {request.batch_size}"
            )
        self._order, self._epoch, self._stats = order, request.epoch, stats
        samples = order.n * order.unit
        done = 0 if request.progress is None else progress_count(request.progress, "samples", samples)
        self._plan = EpochPlan(
            order.n,
            batch_size=request.batch_size // order.unit,
            rank=request.rank,
            world_size=request.world_size,
            drop_last=request.drop_last,
            start=done // order.unit,
        )
        self._ahead = max(1, 4096 // request.batch_size)
        self._first, self._ready = 0, list[tuple[Indices, Repeats]]()

    def __len__(self) -> int:
        return self._plan.remaining

    def batch(self, g: int) -> tuple[Indices, Repeats]:
        if not self._first <= g < self._first + len(self._ready):
            planned = self._plan.batches(g, min(g + self._ahead, max(g + 1, len(self))))
            units = np.concatenate([positions for positions, _ in planned])
            indices, marked = self._order.take(self._epoch, units)
            ends = np.cumsum([len(positions) for positions, _ in planned])[:-1] * self._order.unit
            marks = [None] * len(planned) if marked is None else np.split(marked, ends)
            self._first = g
            self._ready = [
                (own, self._joined(repeat, mark))
                for own, (_, repeat), mark in zip(np.split(indices, ends), planned, marks, strict=True)
            ]
        return self._ready[g - self._first]

    def _joined(self, repeated_units: Repeats, marked: Repeats) -> Repeats:
        repeats = None if repeated_units is None else np.repeat(repeated_units, self._order.unit)
        if marked is not None and marked.any():
            repeats = marked if repeats is None else repeats | marked
        return repeats

    def samples_after(self, g: int) -> int:
        return self._plan.samples_after(g) * self._order.unit

    def progress_after(self, g: int) -> Progress:
        return {"samples": self.samples_after(g)}

    def stats(self, g: int) -> Mapping[str, Any]:
        return {} if self._stats is None else self._stats(self.samples_after(g))


class UnitSampler(OpenSampler):
    """Starts epochs of one kind of order; `make_order` makes that of a seed."""

    def __init__(self, make_order: Callable[[int], UnitOrder], identity: str) -> None:
        self._make_order, self.identity = make_order, identity
        self._made: tuple[int, UnitOrder] | None = None

    def start(self, request: EpochRequest) -> EpochSamples:
        if self._made is None or self._made[0] != request.seed:
            self._made = request.seed, self._make_order(request.seed)
        return UnitSamples(self._made[1], request)
