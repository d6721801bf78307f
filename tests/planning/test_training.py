# SPDX-License-Identifier: Apache-2.0
"""A mix of formats changes nothing about a training: the same losses, bit for bit."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.planning.pictures import make_folder

import headrace
from headrace import formats
from headrace.planning import Calibration, Cost, Machine, solve
from headrace.sources import open_source

ROOT = Path(__file__).parents[2]
SEED, EPOCHS, BATCH = 3, 2, 8


@pytest.fixture(scope="module")
def example():
    """The example's network and its transforms."""
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("small_cnn", ROOT / "examples" / "small_cnn.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["small_cnn"] = module
    spec.loader.exec_module(module)
    return module


def from_files(folder, rows, transform):
    """Batches made by hand from the original files."""
    import torch  # noqa: PLC0415

    source = open_source(folder)
    items = list(source.items())
    compiled = headrace.transforms.compile(transform, color="RGB")
    for epoch in range(EPOCHS):
        for start in range(0, len(rows), BATCH):
            chosen = [(row, source.load(items[row])) for row in map(int, rows[start : start + BATCH])]
            images = [
                compiled.image.apply(
                    formats.decode(sample["image"].data, color="RGB"), seed=SEED, epoch=epoch, sample=row
                )
                for row, sample in chosen
            ]
            yield {
                "image": torch.from_numpy(np.stack(images)),
                "label": torch.tensor([sample["label"] for _, sample in chosen]),
            }


def from_dataset(path, rows, transform):
    with headrace.Loader(path, indices=rows, batch_size=BATCH, seed=SEED, transform=transform) as loader:
        for _ in range(EPOCHS):
            yield from loader


def test_losses_are_the_same_from_files_one_format_and_a_mix(example, tmp_path):
    folder = make_folder(tmp_path / "jpegs", 24, suffix=".jpg", classes=3)
    costs = (
        Cost(format="jpeg", read_bytes=1e5, cpu_seconds=0.005, stored_bytes=1e5, lossless=False),
        Cost(format="hri:fast", read_bytes=5e5, cpu_seconds=0.002, stored_bytes=5e5),
    )
    calibration = Calibration(costs=costs, images=24, sampled=24, batch_size=BATCH, source_format="jpeg")
    mixed = solve(calibration, Machine(storage_rate=1.5e8, cores=1))
    assert {each.format for each in mixed.shares} == {"jpeg", "hri:fast"}
    for name, options in {"one": {"format": "hri:dense"}, "mix": {"plan": mixed.to_json()}}.items():
        headrace.build(folder, tmp_path / name, **options)
    assert len(headrace.open(tmp_path / "mix").formats["image"]) == 2

    rows = np.random.default_rng(0).permutation(24)
    runs = [
        example.train(batches, 3)
        for batches in (
            from_files(folder, rows, example.TRANSFORM),
            from_dataset(tmp_path / "one", rows, example.TRANSFORM),
            from_dataset(tmp_path / "mix", rows, example.TRANSFORM),
        )
    ]

    assert len(runs[0]) == 6
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 6


def test_the_example_trains(example, tmp_path, capsys):
    folder = make_folder(tmp_path / "photos", 12, classes=2)
    headrace.build(folder, tmp_path / "photos.hr")
    losses = example.main(str(tmp_path / "photos.hr"), epochs=1, batch_size=4)

    assert len(losses) == 3
    assert "3 steps" in capsys.readouterr().out
