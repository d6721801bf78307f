# SPDX-License-Identifier: Apache-2.0
"""Epochs of a sampler over all ranks, stopped and continued with other batches, without loading anything."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import strategies as st

from headrace.samplers import EpochRequest


class FakeDataset:
    """Columns of an index, and nothing else."""

    def __init__(self, fields: dict[str, str], **columns: Any) -> None:
        self.fields = fields
        self._columns = {name.replace("__", "."): np.asarray(column) for name, column in columns.items()}
        self._n = len(next(iter(self._columns.values())))

    def __len__(self) -> int:
        return self._n

    @property
    def manifest(self) -> Any:
        return type("FakeManifest", (), {"samples": self._n})

    def column(self, name: str) -> Any:
        return self._columns[name]


shapes = st.tuples(st.integers(1, 9), st.integers(1, 4))
"""Batch size and world size."""


def run(opened: Any, shape: tuple[int, int], *, stop: int | None = None, **request: Any) -> tuple[list[Any], Any]:
    """Return (for each step the (indices, repeats) of each rank, progress); `stop` is the number of steps."""
    batch_size, world_size = shape
    request = {"epoch": 3, "seed": 5, **request}
    ranks = [
        opened.start(EpochRequest(batch_size=batch_size, world_size=world_size, rank=rank, **request))
        for rank in range(world_size)
    ]
    assert len({len(each) for each in ranks}) == 1
    steps = min(len(ranks[0]), len(ranks[0]) if stop is None else stop)
    taken = [[each.batch(g) for each in ranks] for g in range(steps)]
    progress = [json.loads(json.dumps(each.progress_after(steps))) for each in ranks]
    assert all(each == progress[0] for each in progress)
    assert all(each.samples_after(steps) == ranks[0].samples_after(steps) for each in ranks)
    return taken, progress[0]


def fresh(taken: list[Any]) -> list[int]:
    """Return the indices of all steps and ranks that are not marked as repeats."""
    found: list[int] = []
    for step in taken:
        for indices, repeats in step:
            found += indices.tolist() if repeats is None else indices[~repeats].tolist()
    return found


def assert_equal_lengths(taken: list[Any]) -> None:
    """Assert that all ranks have equally many samples in each step."""
    for step in taken:
        assert len({len(indices) for indices, _ in step}) == 1


def same(first: list[Any], second: list[Any]) -> bool:
    """Return whether two runs have the same indices, step by step and rank by rank."""
    as_lists = [[[indices.tolist() for indices, _ in step] for step in taken] for taken in (first, second)]
    return as_lists[0] == as_lists[1]
