# SPDX-License-Identifier: Apache-2.0
"""Where a run stands, as small JSON: enough to go on with the very next sample, whatever the batch and world size.

    {"headrace": "loader state", "version": 1, "epoch": 3, "samples": 51200, "seed": 0, "shuffle": true,
     "length": 1281167, "selection": null, "fingerprint": "6f0c…"}

`samples` counts what all ranks together have yielded to the trainer in this epoch. `selection` names the view, the
indices and the weights by a digest. All members but the first four say what the order depends on: a state can go on
only where they are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import HeadraceError
from headrace.loader._keys import MAX_EPOCH, MAX_SEED
from headrace.loader._order import MAX_SAMPLES, EpochPlan

VERSION = 1
_KIND = "loader state"


class InvalidState(HeadraceError, ValueError):
    """A loader's state that is damaged, of another run, or loaded too late."""


@dataclass(frozen=True, slots=True)
class LoaderState:
    """A point in a run, and what the order of the run depends on."""

    epoch: int
    samples: int
    seed: int
    shuffle: bool
    length: int
    selection: str | None
    fingerprint: str

    def to_json(self) -> dict[str, Any]:
        return {"headrace": _KIND, "version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, tree: Any) -> LoaderState:
        """Read a state; InvalidState if it is none. A whole epoch is taken for the start of the next one."""
        if not isinstance(tree, Mapping) or tree.get("headrace") != _KIND:
            found = ", ".join(map(repr, tree)) if isinstance(tree, Mapping) else type(tree).__name__
            raise InvalidState(f"this is no state of a loader, but has {found or 'nothing'}: give what state_dict gave")
        version = _count(tree, "version", MAX_SEED)
        if version > VERSION:
            raise InvalidState(
                f"the state has version {version} and this is a reader of version {VERSION}: "
                f"install the headrace that wrote it, or a newer one"
            )
        state = cls(
            epoch=_count(tree, "epoch", MAX_EPOCH),
            samples=_count(tree, "samples", MAX_SAMPLES),
            seed=_count(tree, "seed", MAX_SEED),
            shuffle=_typed(tree, "shuffle", bool),
            length=_count(tree, "length", MAX_SAMPLES),
            selection=None if tree.get("selection") is None else _typed(tree, "selection", str),
            fingerprint=_typed(tree, "fingerprint", str),
        )
        if state.samples > state.length:
            raise InvalidState(f"the state has {state.samples} samples of an epoch of {state.length}: it is damaged")
        return state.normalised()

    def normalised(self) -> LoaderState:
        """Take the end of an epoch for the start of the next one."""
        if self.samples < self.length or self.length == 0:
            return self
        return replace(self, epoch=self.epoch + 1, samples=0)

    def after(self, plan: EpochPlan, g: int) -> LoaderState:
        """Give the state after g batches of a plan for this epoch; after its last one the next epoch starts."""
        if g >= plan.remaining:
            return replace(self, epoch=self.epoch + 1, samples=0)
        return replace(self, samples=plan.samples_after(g))

    def check_continues(self, run: LoaderState) -> None:
        """Raise InvalidState unless the order of `run` is the one that this state is a point of."""
        for name, remedy in _REMEDIES.items():
            theirs, ours = getattr(self, name), getattr(run, name)
            if theirs != ours:
                raise InvalidState(f"the state is of a run with {name} {theirs!r}; this loader has {ours!r}: {remedy}")


# In the order in which they explain most.
_REMEDIES = {
    "fingerprint": "load it with the dataset that it was made with, or start afresh",
    "shuffle": "give the loader the same shuffle",
    "seed": "give the loader the same seed",
    "length": "give the loader the same view, indices or weights",
    "selection": "give the loader the same view, indices or weights",
}


def selection_digest(
    rows: npt.NDArray[np.int64] | None = None, weights: npt.NDArray[np.float64] | None = None
) -> str | None:
    """Name the rows that a run is limited to and the weights it samples by; None if there are neither."""
    if rows is None and weights is None:
        return None
    digest = blake2b(digest_size=16)
    for name, array, dtype in (("rows", rows, "<i8"), ("weights", weights, "<f8")):
        if array is not None:
            digest.update(f"{name} {len(array)}\n".encode())
            digest.update(np.ascontiguousarray(array, dtype).data)
    return digest.hexdigest()


def _count(tree: Mapping[str, Any], name: str, most: int) -> int:
    value = tree.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidState(f"the state's {name} is {value!r}, and should be a number from 0 to {most}: it is damaged")
    return value


def _typed(tree: Mapping[str, Any], name: str, kind: type) -> Any:
    value = tree.get(name)
    if not isinstance(value, kind):
        raise InvalidState(f"the state's {name} is {value!r}, and should be a {kind.__name__}: it is damaged")
    return value
