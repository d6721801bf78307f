# SPDX-License-Identifier: Apache-2.0
"""PyTorch samplers and batch samplers, as a way out for orders that Headrace does not have.

Such a sampler is code with a state of its own, so less can be promised. It runs in this process and gives the samples
of this rank. A resumed epoch calls its `set_epoch`, iterates again and skips what was returned before: that is exact if
the sampler gives the same samples again, and needs the same batch size and world size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from headrace.errors import InvalidState, LoaderError
from headrace.loader.sampling._mixture import Mixture
from headrace.loader.sampling._protocol import (
    EpochRequest,
    EpochSamples,
    Indices,
    OpenSampler,
    Progress,
    Repeats,
    Sampler,
    progress_count,
)
from headrace.records import Dataset


class TorchSampler:
    """Wraps an iterable of indices, or with `batched` of lists of indices. Not a user's class: the loader makes it."""

    def __init__(self, sampler: Iterable[Any], *, batched: bool = False) -> None:
        name = "batch_sampler" if batched else "sampler"
        if not hasattr(sampler, "__iter__") or not hasattr(sampler, "__len__"):
            raise TypeError(
                f"{name} must be one of headrace.samplers, or have __iter__ and __len__ as those of PyTorch; "
                f"got {sampler!r}"
            )
        self.wrapped, self._batched = sampler, batched

    def open(self, dataset: Dataset) -> OpenSampler:
        """Use it as it is: it does not know the dataset."""
        return OpenTorchSampler(self.wrapped, len(dataset), batched=self._batched)


class OpenTorchSampler(OpenSampler):
    """Starts epochs of a PyTorch sampler."""

    def __init__(self, sampler: Any, n: int, *, batched: bool) -> None:
        self._sampler, self._n, self._batched = sampler, n, batched
        self.identity = f"torch {type(sampler).__module__}.{type(sampler).__qualname__} {batched}"

    def start(self, request: EpochRequest) -> EpochSamples:
        progress = request.progress
        skipped = 0
        if progress is not None:
            skipped = progress_count(progress, "batches", 1 << 48)
            for name in ("batch_size", "world_size"):
                if progress.get(name) != getattr(request, name):
                    raise InvalidState(
                        f"with a PyTorch sampler an epoch can only be continued with the same {name}, "
                        f"{progress.get(name)}; got {getattr(request, name)}: use it again, or start the next epoch"
                    )
        # A batch sampler usually wraps a sampler that has the epoch.
        for each in (self._sampler, getattr(self._sampler, "sampler", None)):
            set_epoch = getattr(each, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(request.epoch)
        return TorchSamples(self._sampler, request, self._n, skipped, batched=self._batched)

    def length(self, request: EpochRequest) -> int:
        return len(TorchSamples(self._sampler, request, self._n, 0, batched=self._batched))


class TorchSamples(EpochSamples):
    """The batches of one epoch of a PyTorch sampler. Batch g can only be asked for in ascending order."""

    def __init__(self, sampler: Any, request: EpochRequest, n: int, skipped: int, *, batched: bool) -> None:
        self._sampler, self._request, self._n, self._skipped = sampler, request, n, skipped
        length = len(sampler)
        if not batched:
            size = request.batch_size
            length = length // size if request.drop_last else -(-length // size)
        self._length = max(0, length - skipped)
        self._batched = batched
        self._batches: Iterator[list[int]] | None = None  # started with the first batch: `len(loader)` draws nothing
        self._next = 0

    def __len__(self) -> int:
        return self._length

    def _started(self) -> Iterator[list[int]]:
        if self._batched:
            return iter(self._sampler)
        indices = iter(self._sampler)
        return iter(lambda: list(islice(indices, self._request.batch_size)), [])

    def batch(self, g: int) -> tuple[Indices, Repeats]:
        if self._batches is None:
            self._batches = islice(self._started(), self._skipped, None)
        if g != self._next:
            raise LoaderError(f"a PyTorch sampler gives batches in order only: {self._next} is next; asked for {g}")
        listed = next(self._batches, None)
        if listed is None:
            raise LoaderError(
                f"the sampler must give as many batches as its length says, {self._length + self._skipped}; "
                f"it ended after {g + self._skipped}"
            )
        self._next += 1
        indices = np.asarray(list(listed))
        if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
            raise LoaderError(f"the sampler must give integers, and lists of them for a batch_sampler; got {listed!r}")
        indices = indices.astype(np.int64)
        negative = indices < 0
        indices[negative] += self._n
        if not 0 <= indices.min() <= indices.max() < self._n:
            raise LoaderError(f"the sampler must give indices in [{-self._n}, {self._n}); got {listed!r}")
        return indices, None

    def samples_after(self, g: int) -> int:
        return (self._skipped + g) * self._request.batch_size * self._request.world_size

    def progress_after(self, g: int) -> Progress:
        sizes = {name: getattr(self._request, name) for name in ("batch_size", "world_size")}
        return {"batches": self._skipped + g, **sizes}


def find_sampler(dataset: Dataset, sampler: Any, batch_sampler: Any, *, shuffle: bool, weights: Any) -> Sampler | None:
    """Return the sampler that the loader's arguments ask for; None for the loader's own order."""
    if isinstance(dataset, Mixture):
        for name, other in (("sampler", sampler), ("batch_sampler", batch_sampler), ("weights", weights)):
            if other is not None:
                raise ValueError(f"{name} must not be set together with a mixture, which decides the order itself")
        return dataset.sampler(shuffle=shuffle)
    if sampler is None and batch_sampler is None:
        return None
    if sampler is not None and batch_sampler is not None:
        raise ValueError("sampler and batch_sampler must not be set together: give one of them")
    name = "sampler" if batch_sampler is None else "batch_sampler"
    for other, given in (("shuffle", shuffle), ("weights", weights is not None)):
        if given:
            raise ValueError(f"{other} must not be set together with {name}, which decides the order")
    given = sampler if batch_sampler is None else batch_sampler
    if isinstance(given, type):
        raise TypeError(f"{name} must be an object; got the class {given.__name__}: write {given.__name__}(…)")
    if isinstance(given, Sampler) and callable(given.open):
        return given
    return TorchSampler(given, batched=batch_sampler is not None)
