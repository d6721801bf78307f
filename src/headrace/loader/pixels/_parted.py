# SPDX-License-Identifier: Apache-2.0
"""Transforms of single datasets of a mixture: each part of a batch is made by its own, and joined to one batch.

The samples of a batch that have the same transforms are submitted together. Joining copies each image once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import transforms
from headrace.loader.pixels._engine import PixelBatch, Rows, Stack
from headrace.loader.sampling._joined import Joined
from headrace.transforms import Compiled
from headrace.transforms.detection.canvas import check_fields


class PartTransforms:
    """The compiled transforms of each part of a mixture."""

    def __init__(self, dataset: Joined, main: Compiled, own: Mapping[int, Any], **made: Any) -> None:
        self._dataset = dataset
        self._kinds = [main]
        self._kind_of = np.zeros(len(dataset.parts), np.int64)
        for part, transform in own.items():
            compiled = transforms.compile(transform, **made)
            several = compiled.views > 1 or compiled.tiles is not None
            if compiled.per_sample or compiled.per_batch or compiled.mixes or several:
                raise ValueError(
                    f"the transforms of {dataset.parts[part].path} must be declarative and of single samples: give "
                    f"functions and transforms of batches to the loader, which applies them to all samples"
                )
            check_fields(compiled, dataset.fields)
            self._kind_of[part] = len(self._kinds)
            self._kinds.append(compiled)
        if main.views > 1:
            raise ValueError("Views and MultiCrop do not work together with transforms of single datasets of a mixture")

    @property
    def needs_boxes(self) -> bool:
        """Whether a crop depends on the boxes of its sample."""
        return any(each.needs_boxes for each in self._kinds)

    def of(self, row: int) -> Compiled:
        """Return the transforms of a sample."""
        return self._kinds[int(self._kind_of[self._dataset.part_of(np.array([row], np.int64))[0]])]

    def groups(self, rows: Rows) -> list[tuple[Compiled, npt.NDArray[np.int64]]]:
        """Return (transforms, positions of the samples that have them) for each kind that occurs."""
        kinds = self._kind_of[self._dataset.part_of(rows)]
        return [(self._kinds[kind], np.flatnonzero(kinds == kind)) for kind in np.unique(kinds).tolist()]


class PartedBatch:
    """Batches of parts that become one batch."""

    def __init__(self, n: int, parts: Sequence[tuple[PixelBatch, npt.NDArray[np.int64]]]) -> None:
        self._n, self._parts = n, parts

    def wait(self, timeout: float) -> bool:
        """Wait for all parts."""
        deadline = time.monotonic() + timeout
        return all(batch.wait(max(0.0, deadline - time.monotonic())) for batch, _ in self._parts)

    def take(self) -> list[Stack]:
        """Return the pixels of each field: an array if all samples of all parts have one shape, else a list."""
        taken = [batch.take() for batch, _ in self._parts]
        return [self._joined([stacks[field] for stacks in taken]) for field in range(len(taken[0]))]

    def _joined(self, stacks: Sequence[Stack]) -> Stack:
        kinds = {(stack.shape[1:], stack.dtype) if isinstance(stack, np.ndarray) else None for stack in stacks}
        kind = kinds.pop()
        if kind is None or kinds:
            samples: list[Any] = [None] * self._n
            for stack, (_, positions) in zip(stacks, self._parts, strict=True):
                for own, position in enumerate(positions.tolist()):
                    samples[position] = stack[own]
            return samples
        whole = np.empty((self._n, *kind[0]), kind[1])
        for stack, (_, positions) in zip(stacks, self._parts, strict=True):
            whole[positions] = stack
        return whole

    def failures(self) -> list[tuple[int, int, int, str, str]]:
        """Return the failures of all parts, with their positions in the batch."""
        return [
            (int(positions[failure[0]]), *failure[1:])
            for batch, positions in self._parts
            for failure in batch.failures()
        ]
