# SPDX-License-Identifier: Apache-2.0
"""`headrace.offload.Offload`: which exchange folder a loader uses, and with which strategy."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from os import PathLike

from headrace.loader.supply import SupplyContext
from headrace.offload.host._session import OffloadSession
from headrace.offload.strategies._strategies import Strategy, find_strategy


@dataclass(frozen=True)
class Offload:
    """Offloading for a loader: `Loader(..., offload=Offload("exchange", strategy="mte"))`.

    Args:
        exchange: The folder that the loader shares with the offload workers (`headrace offload`).
        strategy: When prepared batches are taken: `"paced"` (default) and `"mte"` in an order that can be repeated,
            `"wrr"` whenever one is ready; or a strategy object of `headrace.offload`, for example with recorded plans.

    """

    exchange: str | PathLike[str]
    strategy: str | Strategy = field(default="paced", kw_only=True)

    def __post_init__(self) -> None:
        os.fspath(self.exchange)
        find_strategy(self.strategy)

    def open_supplier(self, context: SupplyContext) -> OffloadSession:
        """Return what supplies a loader with batches. Called by the loader."""
        return OffloadSession(os.fspath(self.exchange), find_strategy(self.strategy), context)
