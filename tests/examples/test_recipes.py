# SPDX-License-Identifier: Apache-2.0
"""The recipes in examples/ run as they are, on a small dataset with two classes."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import headrace

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPES = sorted(path.stem for path in EXAMPLES.glob("recipe_*.py"))


def example(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    rng = np.random.default_rng(0)
    for number in range(24):
        path = folder / "in" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = Image.fromarray(rng.integers(0, 256, (12, 10, 3), np.uint8))
        noise.resize((90 + number, 70)).save(path)
    headrace.build(folder / "in", folder / "photos.hr", format="keep")
    return str(folder / "photos.hr")


@pytest.mark.parametrize("name", RECIPES)
def test_an_example_is_short(name):
    """At most 80 lines, and its recipe is JSON."""
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 80
    for transform in example(name)["recipe"]():
        assert headrace.transforms.from_json(transform.to_json()) == transform


def test_deit(dataset):
    losses = example("recipe_deit")["main"](dataset, size=32, batch_size=8)

    assert len(losses) == 3
    assert all(np.isfinite(losses))
    assert losses == example("recipe_deit")["main"](dataset, size=32, batch_size=8)


def test_dino(dataset):
    made = list(example("recipe_dino")["batches"](dataset, batch_size=8, sizes=(32, 16)))

    assert len(made) == 3
    for crops in made:
        assert [tuple(crop.shape) for crop in crops] == [(8, 3, 32, 32)] * 2 + [(8, 3, 16, 16)] * 8


def test_simclr(dataset):
    made = list(example("recipe_simclr")["pairs"](dataset, batch_size=8, size=32))

    assert len(made) == 3
    assert all(view.shape == (8, 3, 32, 32) and 0 <= view.min() <= view.max() <= 1 for pair in made for view in pair)


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Images of 16 bits in which each class of the mask has levels of its own."""
    folder = tmp_path_factory.mktemp("scans")
    for number in range(16):
        y, x = np.mgrid[:70, : 80 + number]
        mask = ((x // 20 + y // 25) % 3).astype(np.uint8)
        for name, pixels in (("images", mask.astype(np.uint16) * 20000 + 1000), ("masks", mask)):
            path = folder / "in" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    headrace.build(folder / "in", folder / "scans.hr")
    return str(folder / "scans.hr")


def test_nnunet(scans):
    """Masks go where their scans go: apart from blur and noise, the levels are those of the class."""
    made = list(example("recipe_nnunet")["patches"](scans, batch_size=8, size=48))

    assert len(made) == 2
    for image, mask in made:
        assert image.shape == (8, 1, 48, 48)
        assert image.dtype == torch.float32
        assert set(mask.unique().tolist()) <= {0, 1, 2, 255}
        means = [image[:, 0][mask == k].mean().item() for k in range(3)]
        assert means[0] + 0.5 < means[1] < means[2] - 0.5
