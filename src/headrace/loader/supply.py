# SPDX-License-Identifier: Apache-2.0
"""What a package on top of the loader needs to supply some of its batches, as `headrace.offload` does.

A loader takes the batches of each epoch from a `Supply`. By default that is its own threads. A `SupplyProvider` that is
passed to the loader may take over: `open_supplier` is called once per loader, and `start` once per epoch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol, cast

from headrace.errors import InvalidState
from headrace.loader._options import Decode
from headrace.loader._pipeline import Supply, samples_of, submit
from headrace.loader._state import LoaderState
from headrace.loader._threads import Stopped, StopSign, check, wait_for
from headrace.loader.batch._stats import Meters
from headrace.loader.order._order import EpochBatches, EpochPlan, Order
from headrace.loader.pixels._engine import PixelBatch, PixelSource, Rows, Samples, Stack, take_pixels
from headrace.loader.pixels._errors import Draft
from headrace.records import Dataset
from headrace.records.index.gather import Gather
from headrace.transforms import Compiled

__all__ = [
    "Draft",
    "EpochBatches",
    "EpochPlan",
    "EpochStart",
    "EpochSupplier",
    "Gather",
    "InvalidState",
    "LoaderState",
    "Meters",
    "Order",
    "PixelBatch",
    "PixelSource",
    "Rows",
    "Samples",
    "Stack",
    "StopSign",
    "Stopped",
    "Supply",
    "SupplyContext",
    "SupplyProvider",
    "check",
    "find_provider",
    "samples_of",
    "submit",
    "take_pixels",
    "wait_for",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplyContext:
    """What a supplier needs to know about its loader. It does not keep the loader alive."""

    dataset: Dataset
    fields: tuple[str, ...]  # names of the fields that lie in shards: images, masks and tensors
    compiled: Compiled  # the loader's transforms
    meters: Meters
    batches_ahead: int
    threads: int
    pinned: bool  # whether batches are copied to a GPU, or to pinned memory
    weighted: bool
    """Whether samples are drawn by weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStart:
    """An epoch that is about to start or to continue."""

    state: LoaderState
    plan: EpochPlan
    recipe: dict[str, Any]  # how samples become batches, without the user's functions (spec/recipe.md)
    make_batches: Callable[[bool], EpochBatches]
    """Return the epoch's batches, for a caller that takes them from the tail (True) or from the head (False)."""
    gather: Gather
    source: PixelSource
    """The loader's own threads."""


class EpochSupplier(Protocol):
    """Supplies the epochs of one loader. It must not keep the loader alive."""

    def start(self, epoch: EpochStart) -> tuple[Supply, Callable[[int], LoaderState]] | None:
        """Return (supply, state_after), or None if the loader should make all batches of this epoch itself.

        `state_after(n)` is the loader's state after n batches.
        """

    def stats(self, engine: dict[str, Any]) -> dict[str, Any]:
        """Return figures for `Loader.stats`; `engine` has those of the loader's own threads."""

    def close(self) -> None:
        """Release everything. The loader is closed."""

    def drop(self) -> None:
        """Release what can be released without waiting: finalizers call this."""


class SupplyProvider(Protocol):
    """Makes the supplier of a loader. It is pickled with the loader."""

    def open_supplier(self, context: SupplyContext) -> EpochSupplier: ...


def find_provider(
    offload: str | PathLike[str] | SupplyProvider | None, decode: Decode
) -> tuple[SupplyProvider | None, Decode]:
    """Return (provider, decode) for the loader's arguments. With a provider, images are decoded on the CPU."""
    if offload is None:
        return None, decode
    if decode == "device":
        raise ValueError("decode must be 'cpu' or 'auto' if offload is given, which decodes on a CPU; got 'device'")
    if isinstance(offload, str | PathLike):
        # The only place where the loader names a package above it, so that users need no import for a path.
        return cast("SupplyProvider", importlib.import_module("headrace.offload").Offload(offload)), "cpu"
    if not hasattr(offload, "open_supplier"):
        raise TypeError(f"offload must be the path of an exchange folder or headrace.offload.Offload; got {offload!r}")
    return offload, "cpu"
