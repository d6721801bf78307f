# SPDX-License-Identifier: Apache-2.0
"""The batches of a sampler's epoch as the pipeline takes them, checked."""

from __future__ import annotations

import numpy as np

from headrace.errors import LoaderError
from headrace.loader.sampling._protocol import EpochSamples, Indices, Repeats


class SampledBatches:
    """The batches of an epoch as the pipeline takes them. What a sampler returns is checked here."""

    def __init__(self, samples: EpochSamples, epoch: int) -> None:
        self.samples, self.epoch = samples, epoch
        self._length = len(samples)

    def __len__(self) -> int:
        return self._length

    def batch(self, g: int) -> tuple[Indices, Repeats]:
        """Return (indices of batch g, which of them are repeats or None)."""
        indices, repeats = self.samples.batch(g)
        if not isinstance(indices, np.ndarray) or indices.dtype != np.int64 or indices.ndim != 1 or not len(indices):
            raise LoaderError(
                f"the sampler must return indices as a 1-D int64 array that is not empty; batch {g} is {indices!r}"
            )
        if repeats is not None and (repeats.shape != indices.shape or repeats.dtype != np.bool_):
            raise LoaderError(
                f"the sampler must mark repeats by one bool per index; batch {g} has {len(indices)} indices and "
                f"{repeats.dtype} {list(repeats.shape)}"
            )
        return indices, repeats

    def shape(self, g: int) -> tuple[int, int] | None:
        """Return the height and width that images of batch g are padded to on all ranks; None: as on each rank."""
        return self.samples.shape(g)
