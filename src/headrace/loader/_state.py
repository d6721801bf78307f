# SPDX-License-Identifier: Apache-2.0
"""The state of a loader as small JSON. Any batch size and world size can continue from it at the next sample.

    {"headrace": "loader state", "version": 1, "epoch": 3, "samples": 51200, "seed": 0, "shuffle": true,
     "length": 1281167, "selection": null, "fingerprint": "6f0c…"}

`samples` counts what all ranks together have returned in this epoch. `selection` is a digest of the view, the indices
and the weights. The members from `seed` on determine the order: a state fits a loader only if these are equal.

With an offload worker, `samples` counts from the start of the epoch, and version 2 has two more members:

    {"version": 2, …, "tail": 12800, "prongs": {"strategy": "paced", "stride": 256, "pattern": {…}}}

`tail` counts what was returned from the end of the epoch. The rest is one range of samples, which any loader can
continue: with another batch size, world size or strategy, and without an offload worker. `prongs` is the state of the
strategy: the pattern of the remaining batches, for global batches of `stride` samples; null for `wrr`, which has none.

With a sampler or a mixture, version 3 has one more member instead:

    {"version": 3, …, "sampler": {"progress": {…}, "settings": {…}}}

`progress` is where the sampler continues in this epoch (spec/order.md), null at the start of an epoch. `settings` is
what may change between epochs, such as the weights of a mixture; null if there is nothing. `length` is the number of
samples of the dataset, and `samples` is for readers only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import InvalidState
from headrace.loader.order._keys import MAX_EPOCH, MAX_SEED, check_epoch
from headrace.loader.order._order import MAX_SAMPLES, EpochPlan
from headrace.loader.sampling._protocol import EpochSamples, Progress
from headrace.records import Dataset, Manifest
from headrace.records.versions import address

VERSION = 3
_KIND = "loader state"


@dataclass(frozen=True, slots=True)
class LoaderState:
    """A position in a run, and everything that the order of the run depends on."""

    epoch: int
    samples: int
    seed: int
    shuffle: bool
    length: int
    selection: str | None
    fingerprint: str
    tail: int = 0
    prongs: Mapping[str, Any] | None = None
    sampler: Mapping[str, Any] | None = None

    @property
    def stop(self) -> int:
        """Where the samples start that were returned from the end of the epoch."""
        return self.length - self.tail

    def to_json(self) -> dict[str, Any]:
        """Return the document. Without an offload worker it has version 1, which older versions can read."""
        members = asdict(self)
        sampler = members.pop("sampler")
        if self.tail or self.prongs is not None:
            return {"headrace": _KIND, "version": 2, **members}
        del members["tail"], members["prongs"]
        if sampler is not None:
            return {"headrace": _KIND, "version": 3, **members, "sampler": sampler}
        return {"headrace": _KIND, "version": 1, **members}

    @classmethod
    def from_json(cls, tree: Any) -> LoaderState:
        """Read a document; the end of an epoch becomes the start of the next one. Raises InvalidState."""
        if not isinstance(tree, Mapping) or tree.get("headrace") != _KIND:
            found = ", ".join(map(repr, tree)) if isinstance(tree, Mapping) else type(tree).__name__
            raise InvalidState(f"a loader state must come from Loader.state_dict(); found {found or 'an empty dict'}")
        version = _count(tree, "version", MAX_SEED)
        if version > VERSION:
            raise InvalidState(
                f"the version of the state must be at most {VERSION}; it is {version}: install a newer headrace"
            )
        state = cls(
            epoch=_count(tree, "epoch", MAX_EPOCH),
            samples=_count(tree, "samples", MAX_SAMPLES),
            seed=_count(tree, "seed", MAX_SEED),
            shuffle=_typed(tree, "shuffle", bool),
            length=_count(tree, "length", MAX_SAMPLES),
            selection=None if tree.get("selection") is None else _typed(tree, "selection", str),
            fingerprint=_typed(tree, "fingerprint", str),
            tail=_count(tree, "tail", MAX_SAMPLES) if version == 2 else 0,
            prongs=None if version != 2 or tree.get("prongs") is None else _typed(tree, "prongs", Mapping),
            sampler=_sampler(tree) if version > 2 else None,
        )
        if state.sampler is not None:
            return state
        done = state.samples + state.tail
        if done > state.length:
            raise InvalidState(f"the state is damaged: it counts {done} samples of an epoch of {state.length}")
        return state.at_epoch(state.epoch + 1) if 0 < done == state.length else state

    def at_epoch(self, epoch: int) -> LoaderState:
        """Return the start of an epoch of the same run."""
        sampler = None if self.sampler is None else {**self.sampler, "progress": None}
        return replace(self, epoch=epoch, samples=0, tail=0, prongs=None, sampler=sampler)

    def after(
        self, plan: EpochPlan, batches: int, from_tail: int = 0, prongs: Mapping[str, Any] | None = None
    ) -> LoaderState:
        """Return the state after so many batches of a plan for this epoch.

        `from_tail` of them were from the end of the epoch; `prongs` is the state of the strategy. After the last batch
        it is the start of the next epoch.
        """
        if batches >= plan.remaining:
            return self.at_epoch(self.epoch + 1)
        tail = plan.n - plan.samples_after(plan.remaining - from_tail) if from_tail else self.tail
        return replace(self, samples=plan.samples_after(batches - from_tail), tail=tail, prongs=prongs)

    def after_sampled(
        self, sampled: EpochSamples, batches: int, settings: Callable[[], Progress | None]
    ) -> LoaderState:
        """Return the state after so many batches of a sampler; after the last one the start of the next epoch."""
        current = {"progress": None, "settings": settings()}
        if batches >= len(sampled):
            return replace(self.at_epoch(self.epoch + 1), sampler=current)
        current["progress"] = sampled.progress_after(batches)
        return replace(self, samples=sampled.samples_after(batches), sampler=current)

    def check_continues(self, run: LoaderState) -> None:
        """Raise InvalidState unless this is a position in the same run."""
        for name, remedy in _REMEDIES.items():
            theirs, ours = getattr(self, name), getattr(run, name)
            if theirs != ours:
                raise InvalidState(f"the state is of a run with {name} {theirs!r}; this loader has {ours!r}: {remedy}")
        if (self.sampler is None) != (run.sampler is None):
            found, wanted = ("a", "no") if run.sampler is None else ("no", "a")
            raise InvalidState(
                f"the state is of a run with {found} sampler; this loader has {wanted} one: {_SAME_ROWS}"
            )


# The most informative first.
_SAME_ROWS = "give the loader the same view, indices, weights or sampler"
_REMEDIES = {
    "fingerprint": "load it with the dataset that it was made with, or start again",
    "shuffle": "give the loader the same shuffle",
    "seed": "give the loader the same seed",
    "length": _SAME_ROWS,
    "selection": _SAME_ROWS,
}


def check_version(state: LoaderState, dataset: Dataset) -> None:
    """Raise InvalidState if the state belongs to another version of the dataset; the message says how to open it."""
    if state.fingerprint == dataset.fingerprint:
        return
    found = Manifest.find(dataset.path, state.fingerprint)
    if found is not None:
        theirs = address(dataset.path, found.number)
        raise InvalidState(
            f"the state is of a run with version {found.number} of {dataset.path}; this loader has version "
            f"{dataset.version}: make it with {theirs!r} to continue that run, or start again without the state"
        )


class EpochCursor:
    """The position of one loader.

    Each iteration starts the epoch after the last one of which a batch was returned, unless `set_epoch`, `load` or
    `skip` says otherwise. Only `load` and `skip` can start in the middle of an epoch.
    """

    def __init__(self, state: LoaderState) -> None:
        self.start = state  # where the next iteration starts
        self.batches = 0  # batches that the current iteration has returned
        self._started = state
        self._state_after: Callable[[int], LoaderState] | None = None
        self._follows = False  # whether `start` is what follows an iteration that has batches, and was not chosen

    @property
    def state(self) -> LoaderState:
        """What has been returned so far. Computed on request, since few batches need it."""
        return self._started if self._state_after is None or not self.batches else self._state_after(self.batches)

    def start_iteration(self, state_after: Callable[[int], LoaderState], length: int) -> None:
        """Start an iteration of `length` batches; `state_after(n)` is the state after n of them."""
        self._move_to(self.start, state_after)
        self.start = self.start.at_epoch(self.start.epoch + 1)
        self._follows = length > 0

    def return_unused(self) -> None:
        """Start where the last iteration did if it returned nothing: some trainers call `iter` only to check it."""
        if self._follows and not self.batches:
            self.start = self._started
            self._follows = False

    def set_epoch(self, epoch: int, *, iterating: bool) -> None:
        """Let the next iteration start this epoch. An epoch that was loaded continues where it was."""
        if not iterating:
            self.return_unused()
        if check_epoch(epoch) != self.start.epoch:
            self.start = self.start.at_epoch(epoch)
        self._follows = False
        if not iterating:
            self._move_to(self.start)

    def load(self, state: LoaderState, load_settings: Callable[[LoaderState], None] = lambda _: None) -> None:
        """Let the next iteration continue from this state; `load_settings` is called once it has been checked."""
        state.check_continues(self.state)
        load_settings(state)
        self.start = state
        self._move_to(state)

    def skip(self, samples: int) -> None:
        """Let the next iteration start after so many samples of its epoch, over all ranks."""
        self.return_unused()
        self.load(replace(self.start.at_epoch(self.start.epoch), samples=samples))

    def _move_to(self, state: LoaderState, state_after: Callable[[int], LoaderState] | None = None) -> None:
        self._started, self.batches, self._state_after, self._follows = state, 0, state_after, False

    def __getstate__(self) -> dict[str, Any]:
        """Return the same position without its iteration, for a copy."""
        start = self._started if self._follows and not self.batches else self.start
        return {"start": start, "_started": self.state, "batches": 0, "_state_after": None, "_follows": False}


def selection_digest(
    rows: npt.NDArray[np.int64] | None = None,
    weights: npt.NDArray[np.float64] | None = None,
    sampler: str | None = None,
) -> str | None:
    """Return a digest of the rows that a run is limited to, its weights and its sampler; None if there are none."""
    if rows is None and weights is None and sampler is None:
        return None
    digest = blake2b(digest_size=16)
    for name, array, dtype in (("rows", rows, "<i8"), ("weights", weights, "<f8")):
        if array is not None:
            digest.update(f"{name} {len(array)}\n".encode())
            digest.update(np.ascontiguousarray(array, dtype).data)
    if sampler is not None:
        digest.update(f"sampler {sampler}\n".encode())
    return digest.hexdigest()


def _sampler(tree: Mapping[str, Any]) -> dict[str, Any]:
    members = _typed(tree, "sampler", Mapping)
    return {
        name: None if members.get(name) is None else dict(_typed(members, name, Mapping))
        for name in ("progress", "settings")
    }


def _count(tree: Mapping[str, Any], name: str, maximum: int) -> int:
    value = tree.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise InvalidState(f"the state is damaged: {name} must be an integer in [0, {maximum}]; it is {value!r}")
    return value


def _typed(tree: Mapping[str, Any], name: str, kind: type) -> Any:
    value = tree.get(name)
    if not isinstance(value, kind):
        raise InvalidState(f"the state is damaged: {name} must be a {kind.__name__}; it is {value!r}")
    return value
