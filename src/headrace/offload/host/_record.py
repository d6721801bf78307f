# SPDX-License-Identifier: Apache-2.0
"""What a loader's state contains about offloading, and how a run continues from it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from headrace.loader.supply import EpochPlan, InvalidState, LoaderState
from headrace.offload.strategies._pattern import Pattern


class EpochRecord:
    """Counts the batches of one epoch from the tail, and keeps its pattern or its order for the state."""

    def __init__(self, begun: LoaderState, plan: EpochPlan, strategy: str, *, keeps_order: bool) -> None:
        self._begun, self._plan, self._strategy, self._keeps_order = begun, plan, strategy, keeps_order
        self.pattern: Pattern | None = None
        """Of all slots since the iteration began, once it is decided."""
        self._from_tail = self._batches = 0
        past = (begun.prongs or {}).get("order")
        self._order: list[int] = list(past) if isinstance(past, list) else []

    @property
    def epoch(self) -> int:
        return self._begun.epoch

    def after(self, batches: int, taken: bytearray) -> LoaderState:
        """Return the state after `batches`; `taken` says of each slot whether its batch was from the tail."""
        new = taken[self._batches : batches]
        self._from_tail += sum(new)
        self._batches = batches
        if self._keeps_order:
            self._order = _join(self._order, run_lengths(new))
        prongs = {
            "strategy": self._strategy,
            "stride": self._plan.batch_size * self._plan.world_size,
            "pattern": None if self.pattern is None else self.pattern.after(batches).to_json(),
            "order": self._order if self._keeps_order else None,
        }
        return self._begun.after(self._plan, batches, self._from_tail, prongs)


def recorded_pattern(state: LoaderState, strategy: str, stride: int) -> Pattern | None:
    """Return the pattern with which a state's epoch continues; None if strategy or stride differ or it has none."""
    prongs = state.prongs
    if prongs is None or prongs.get("strategy") != strategy or prongs.get("stride") != stride:
        return None
    if not isinstance(prongs.get("pattern"), Mapping):
        return None
    try:
        return Pattern.from_json(prongs["pattern"])
    except ValueError as error:
        raise InvalidState(f"the state's offload pattern is damaged: {error}") from None


def run_lengths(taken: bytes | bytearray) -> list[int]:
    """Return an order as lengths: slots from the head, then from the tail, then from the head, and so on."""
    lengths = [(bool(kind), sum(1 for _ in group)) for kind, group in groupby(taken)]
    return ([0] if lengths and lengths[0][0] else []) + [length for _, length in lengths]


def _join(first: list[int], then: list[int]) -> list[int]:
    """Concatenate two orders; lengths of the head are at even positions."""
    if not first:
        return then
    if not then:
        return first
    if len(first) % 2:  # it ends with the head, and the other begins with it
        return [*first[:-1], first[-1] + then[0], *then[1:]]
    return [*first, *then] if then[0] else [*first[:-1], first[-1] + then[1], *then[2:]]
