# SPDX-License-Identifier: Apache-2.0
"""What a loader says of itself."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.loader import compiled_transform
from headrace.transforms import CenterCrop
from headrace.units import usable_cores


def collate(samples: list[Any]) -> list[Any]:
    return samples


def test_a_loader_tells_what_it_was_asked_for(path: Path) -> None:
    asked = {
        "batch_size": 3,
        "fields": ("label", "image"),
        "num_workers": 2,
        "collate_fn": collate,
        "output": "numpy",
        "direct_io": True,
        "transform": [CenterCrop(8)],
    }
    with headrace.Loader(path, **asked) as loader:
        with pickle.loads(pickle.dumps(loader)) as again:
            for each in (loader, again):
                assert {name: getattr(each, name) for name in asked} == asked
                assert each.device is None
                assert compiled_transform(each).transforms == (CenterCrop(8),)
                assert each.batches_ahead == 8
        for name in asked:
            with pytest.raises(AttributeError):
                setattr(loader, name, None)


def test_a_loader_tells_what_its_defaults_came_to(path: Path) -> None:
    with headrace.Loader(path) as loader:
        assert loader.num_workers == usable_cores()
        assert loader.fields == tuple(loader.dataset.fields)
        assert loader.output == "torch"
        assert (loader.direct_io, loader.transform, loader.collate_fn) == (False, None, None)
        assert not compiled_transform(loader).transforms


def test_a_loader_without_transforms_has_those_of_its_dataset(path: Path) -> None:
    crop = [CenterCrop(8)]
    with headrace.Loader(headrace.open(path, transform=crop)) as loader:
        assert loader.transform is crop
