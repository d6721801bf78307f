# SPDX-License-Identifier: Apache-2.0
"""Strategies by their names."""

from __future__ import annotations

from headrace.offload.strategies._mte import Mte
from headrace.offload.strategies._paced import Paced
from headrace.offload.strategies._strategy import Strategy
from headrace.offload.strategies._wrr import Wrr

STRATEGIES: dict[str, type[Strategy]] = {kind.name: kind for kind in (Paced, Mte, Wrr)}


def find_strategy(given: str | Strategy) -> Strategy:
    """Give the strategy of a name, or the one that is given."""
    if isinstance(given, Strategy):
        return given
    if given not in STRATEGIES:
        raise ValueError(f"strategy is one of {', '.join(map(repr, STRATEGIES))}, or an object of these, not {given!r}")
    return STRATEGIES[given]()
