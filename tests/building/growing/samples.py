# SPDX-License-Identifier: Apache-2.0
"""Small datasets that grow, and what each of their versions must contain."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tests.building.pictures import make_image

import headrace
from headrace.records import Dataset

FIELDS = {"image": "image", "label": "int64", "boxes": "boxes", "name": "str", "score": "float32"}


def make_sample(number: int) -> dict[str, Any]:
    """A sample of its own shape and values, the same for the same number."""
    n_boxes = number % 3
    return {
        "image": make_image(number, side=24),
        "label": number % 3,
        "boxes": (np.full((n_boxes, 4), number, np.float32), np.arange(n_boxes)),
        "name": f"№ {number}",
        "score": number / 2,
    }


def write(path: Path, numbers: Iterable[int], classes: tuple[str, ...] | None = ("ant", "bee", "cow")) -> Path:
    """Write samples to a new dataset, seven to a shard, with their number as key."""
    options = {"workers": 1, "shard_samples": 7, "classes": None if classes is None else list(classes)}
    with headrace.Writer(path, fields=FIELDS, **options) as writer:
        for number in numbers:
            writer.write(make_sample(number), key=str(number))
    return path


def check(dataset: Dataset, numbers: Iterable[int]) -> None:
    """Check that a version has exactly these samples, in this order, in every way of reading it."""
    numbers = list(numbers)
    assert [dataset.key(index) for index in range(len(dataset))] == list(map(str, numbers))
    for index, number in enumerate(numbers):
        expected, found = make_sample(number), dataset[index]
        np.testing.assert_array_equal(found["image"], expected["image"])
        np.testing.assert_array_equal(found["boxes"].xyxy, expected["boxes"][0])
        assert (found["label"], found["name"], found["score"]) == (number % 3, f"№ {number}", number / 2)
    assert dataset.targets.tolist() == [number % 3 for number in numbers]
    assert dataset.table.column("name").to_pylist() == [f"№ {number}" for number in numbers]
    gather = dataset.gather
    rows = gather.rows(np.arange(len(numbers))[::-1])
    assert gather.values("score", rows).tolist() == [number / 2 for number in numbers[::-1]]
    assert gather.values("name", rows) == [f"№ {number}" for number in numbers[::-1]]
    assert dataset.verify().problems == ()
