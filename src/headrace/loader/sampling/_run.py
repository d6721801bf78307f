# SPDX-License-Identifier: Apache-2.0
"""A sampler at work in a loader: its epochs, its part of the state, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace.loader._options import Ranks
from headrace.loader._state import LoaderState
from headrace.loader.sampling._batches import SampledBatches
from headrace.loader.sampling._protocol import EpochRequest, EpochSamples, Sampler
from headrace.records import Dataset


class Sampling:
    """The sampler of one loader, opened for its dataset."""

    def __init__(self, sampler: Sampler, dataset: Dataset, seed: int, *, drop_last: bool) -> None:
        self._opened = sampler.open(dataset)
        self.identity = self._opened.identity
        self._seed, self._drop_last = seed, drop_last
        self._current: EpochSamples | None = None

    @property
    def first_state(self) -> dict[str, Any]:
        return {"progress": None, "settings": self._opened.settings()}

    def _request(self, batch_size: int, ranks: Ranks, epoch: int, progress: Any = None) -> EpochRequest:
        own = {"seed": self._seed, "drop_last": self._drop_last, "progress": progress}
        return EpochRequest(epoch=epoch, batch_size=batch_size, **ranks._asdict(), **own)

    def length(self, batch_size: int, ranks: Ranks) -> int:
        """Return the number of batches of a complete epoch, with the settings of now."""
        return self._opened.length(self._request(batch_size, ranks, 0))

    def start(
        self, batch_size: int, ranks: Ranks, state: LoaderState
    ) -> tuple[SampledBatches, Callable[[int], LoaderState]]:
        """Start an epoch or continue one. Return (batches, state_after)."""
        progress = None if state.sampler is None else state.sampler["progress"]
        samples = self._opened.start(self._request(batch_size, ranks, state.epoch, progress))
        self._current = samples
        after = partial(state.after_sampled, samples, settings=self._opened.settings)
        return SampledBatches(samples, state.epoch), after

    def load(self, state: LoaderState) -> None:
        """Restore the settings of a state. Raises InvalidState."""
        settings = None if state.sampler is None else state.sampler["settings"]
        if settings is not None:
            self._opened.load_settings(settings)

    def stats(self, returned: int) -> Mapping[str, Any]:
        """Return the sampler's figures of the first `returned` batches of the last iteration."""
        return {} if self._current is None else self._current.stats(min(returned, len(self._current)))


def check_sampled(
    sampler: Sampler | None, provider: object, batch_sampler: object, batch_size: int, *, drop_last: bool
) -> None:
    """Raise ValueError if other arguments of the loader do not go with a sampler."""
    if sampler is None:
        return
    if provider is not None:
        raise ValueError(
            "offload must not be set together with a sampler or a mixture: offload workers know only the loader's own "
            "order"
        )
    if batch_sampler is not None and (batch_size != 1 or drop_last):
        raise ValueError("batch_size and drop_last must not be set together with batch_sampler, which makes batches")
