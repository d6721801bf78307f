# SPDX-License-Identifier: Apache-2.0
"""A picture of draws: as many images as asked for, and those that training sees."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image
from tests.loader.datasets import CORE, write

import headrace
from headrace.transforms import (
    HorizontalFlip,
    MixUp,
    MultiCrop,
    Normalize,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    View,
)

RECIPE = [RandomResizedCrop(32), HorizontalFlip(), Normalize(0.5, 0.25), RandomErasing(), MixUp(num_classes=3)]


def save(path, transforms):
    path.write_text(json.dumps([item.to_json() for item in transforms]))


def test_a_dataset_is_shown_with_its_boxes(run, folder):
    write(folder / "some.hr", 6, formats=CORE)
    save(folder / "recipe.json", RECIPE)

    ran = run("transforms-preview", "some.hr", "--recipe", "recipe.json", "--samples", 3, "--draws", 5, "--cell", 32)

    assert ran.code == 0, ran.err
    assert ran.out == "wrote preview.png: 3 samples, 5 draws each\n"
    picture = np.asarray(Image.open(folder / "preview.png"))
    assert picture.shape == (3 * 36 + 4, 6 * 36 + 4, 3)
    assert (picture == (255, 64, 64)).all(axis=2).any(), "boxes"


def test_a_draw_is_that_of_training(run, folder):
    """A cell of the size of the crop is the crop itself."""
    write(folder / "some.hr", 2, formats=CORE)
    with headrace.Loader(folder / "some.hr", fields=["image"], transform=RECIPE[:2], seed=3, output="numpy") as loader:
        recipe = {**loader.recipe}
        loader.set_epoch(7)
        first = next(iter(loader))["image"][0].transpose(1, 2, 0)
    (folder / "recipe.json").write_text(json.dumps(recipe))
    image = headrace.open(folder / "some.hr")[0]["image"]
    Image.fromarray(image).save(folder / "first.png")

    ran = run("transforms-preview", "first.png", "--recipe", "recipe.json", "--seed", 3, "--epoch", 7, "--cell", 32)

    assert ran.code == 0, ran.err
    picture = np.asarray(Image.open(folder / "preview.png"))
    assert np.array_equal(picture[4:36, 40:72], first)


def test_all_views_are_shown(run, folder):
    write(folder / "some.hr", 2, formats=CORE)
    save(folder / "recipe.json", [MultiCrop([View(2, [RandomResizedCrop(24)]), View(3, [Resize((9, 12))])])])
    options = ("--samples", 1, "--draws", 2, "--cell", 16)

    assert run("transforms-preview", "some.hr", "--recipe", "recipe.json", *options).code == 0

    with Image.open(folder / "preview.png") as picture:
        assert picture.size == ((1 + 2 * 5) * 20 + 4, 20 + 4)


def test_errors_name_what_is_wrong(run, folder):
    write(folder / "some.hr", 2, formats=CORE)
    (folder / "recipe.json").write_text("{}")

    assert "member transforms" in run("transforms-preview", "some.hr", "--recipe", "recipe.json").err
    save(folder / "recipe.json", RECIPE)
    (folder / "preview.png").touch()
    assert "--force" in run("transforms-preview", "some.hr", "--recipe", "recipe.json").err
    ran = run("transforms-preview", "some.hr", "--recipe", "recipe.json", "--force", "--start", 2)
    assert "--start must be below the number of samples, 2; got 2" in ran.err
