# SPDX-License-Identifier: Apache-2.0
"""Where a run stands, as small JSON: enough to go on with the very next sample, whatever the batch and world size.

    {"headrace": "loader state", "version": 1, "epoch": 3, "samples": 51200, "seed": 0, "shuffle": true,
     "length": 1281167, "selection": null, "fingerprint": "6f0c…"}

`samples` counts what all ranks together have yielded to the trainer in this epoch. `selection` names the view, the
indices and the weights by a digest. All members but the first four say what the order depends on: a state can go on
only where they are the same.

With an offload worker, `samples` counts from the head of the epoch and version 2 has two members more:

    {"version": 2, …, "tail": 12800, "prongs": {"strategy": "paced", "stride": 256, "pattern": {…}, "order": null}}

`tail` counts what was yielded from the end of the epoch, so that what remains is one stretch, which any loader can go
on with: with another batch size, world size or strategy, and without an offload worker. `prongs` says how the strategy
went on from here: the pattern of the slots that remain, for global batches of `stride` samples; and for `wrr`, which
has none, the order so far in batches: so many of the host's, so many of the offload worker's, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import InvalidState
from headrace.loader.order._keys import MAX_EPOCH, MAX_SEED
from headrace.loader.order._order import MAX_SAMPLES, EpochPlan

VERSION = 2
_KIND = "loader state"


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
    tail: int = 0
    prongs: Mapping[str, Any] | None = None

    @property
    def stop(self) -> int:
        """Where the samples begin that came from the tail."""
        return self.length - self.tail

    def to_json(self) -> dict[str, Any]:
        """Write it down; what never had an offload worker as version 1, which older readers know."""
        members = asdict(self)
        if self.tail or self.prongs is not None:
            return {"headrace": _KIND, "version": VERSION, **members}
        del members["tail"], members["prongs"]
        return {"headrace": _KIND, "version": 1, **members}

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
            tail=_count(tree, "tail", MAX_SAMPLES) if version > 1 else 0,
            prongs=None if version == 1 or tree.get("prongs") is None else _typed(tree, "prongs", Mapping),
        )
        if state.samples + state.tail > state.length:
            had = state.samples + state.tail
            raise InvalidState(f"the state has {had} samples of an epoch of {state.length}: it is damaged")
        return state.normalised()

    def normalised(self) -> LoaderState:
        """Take the end of an epoch for the start of the next one."""
        if self.samples + self.tail < self.length or self.length == 0:
            return self
        return self.at_epoch(self.epoch + 1)

    def at_epoch(self, epoch: int) -> LoaderState:
        """Give the start of an epoch of the same run."""
        return replace(self, epoch=epoch, samples=0, tail=0, prongs=None)

    def after(self, plan: EpochPlan, g: int, near: int = 0, prongs: Mapping[str, Any] | None = None) -> LoaderState:
        """Give the state after g batches of a plan for this epoch; after its last one the next epoch starts.

        `near` of them came from the tail; `prongs` is what a strategy has to say.
        """
        if g >= plan.remaining:
            return self.at_epoch(self.epoch + 1)
        tail = plan.n - plan.samples_after(plan.remaining - near) if near else self.tail
        return replace(self, samples=plan.samples_after(g - near), tail=tail, prongs=prongs)

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
