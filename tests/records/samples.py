# SPDX-License-Identifier: Apache-2.0
"""Small datasets to read from, made through the public writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import headrace

FIELDS = {
    "image": "image",
    "mask": "mask",
    "label": "int64",
    "boxes": "boxes",
    "name": "str",
    "scores": "list<float32>",
}
CLASSES = ["ape", "bee", "cat"]


def make_sample(number: int) -> dict[str, Any]:
    """A sample of its own shape and values, the same for the same number."""
    rng = np.random.default_rng(number)
    height, width = (int(side) for side in rng.integers(1, 40, 2))
    n_boxes = number % 4
    return {
        "image": rng.integers(0, 256, (height, width, 3), np.uint8),
        "mask": rng.integers(0, 5, (height, width)).astype(np.uint8),
        "label": number % 3,
        "boxes": (rng.random((n_boxes, 4), np.float32) * 40, rng.integers(0, 9, n_boxes)),
        "name": f"№ {number}",
        "scores": rng.random(number % 3, np.float32),
    }


def write(path: Path, count: int = 30, **options: Any) -> Path:
    """Write `count` samples to a dataset, seven to a shard."""
    options = {"workers": 1, "shard_samples": 7, **options}
    with headrace.Writer(path, fields=FIELDS, classes=CLASSES, **options) as writer:
        for number in range(count):
            writer.write(make_sample(number), key=f"sample/{number}")
    return path


def assert_same(expected: dict[str, Any], actual: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if name == "boxes":
            np.testing.assert_array_equal(actual[name].xyxy, value[0])
            np.testing.assert_array_equal(actual[name].labels, value[1])
        elif isinstance(value, np.ndarray):
            assert actual[name].dtype == value.dtype
            np.testing.assert_array_equal(actual[name], value)
        else:
            assert actual[name] == value
