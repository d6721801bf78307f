# SPDX-License-Identifier: Apache-2.0
"""How the samples of a calibration are loaded: as the recipe, or the transform and batch size, say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from headrace import formats as image_formats
from headrace.transforms import HorizontalFlip, Normalize, RandomResizedCrop, Recipe, Transform

USUAL_CROP, USUAL_BATCH = 224, 64
# What nearly everyone normalises photographs by; the figures do not change the speed.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_OF_A_RECIPE = ("batch_size", "dtype", "layout", "color", "min_area", "approximate_jpeg")


def loader_options(
    transform: Any, recipe: Recipe | Mapping[str, Any] | str | PathLike[str] | None, batch_size: int
) -> dict[str, Any]:
    """Arguments of the loader. Arrays come as NumPy's: a calibration needs no framework."""
    if recipe is None:
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1, not {batch_size}")
        return {"transform": transform, "batch_size": batch_size, "output": "numpy"}
    if transform is not None:
        raise ValueError("a recipe has its transforms: give one of recipe and transform")
    read = read_recipe(recipe)
    options = {name: getattr(read, name) for name in _OF_A_RECIPE}
    return {**options, "transform": list(read.transforms), "fields": list(read.fields), "output": "numpy"}


def usual_transform(crop: int | None = None) -> list[Transform]:
    """What most do with photographs, where nobody says otherwise: a random crop, a flip, and normalisation."""
    return [RandomResizedCrop(crop or USUAL_CROP), HorizontalFlip(), Normalize(_MEAN, _STD)]


def read_recipe(recipe: Recipe | Mapping[str, Any] | str | PathLike[str]) -> Recipe:
    """Take a recipe, its JSON object or its file."""
    if isinstance(recipe, Recipe):
        return recipe
    if isinstance(recipe, Mapping):
        return Recipe.from_json(recipe)
    return Recipe.from_json(Path(recipe).read_bytes())


def describe(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as JSON; of functions their names."""
    given = options.get("transform")
    steps = given if isinstance(given, Sequence) else [] if given is None else [given]
    transforms = [
        step.to_json() if isinstance(step, Transform) else {"function": getattr(step, "__qualname__", repr(step))}
        for step in steps
    ]
    plain = {
        name: value if isinstance(value, bool | int | float | str | None) else str(value)
        for name, value in options.items()
        if name not in ("transform", "fields")
    }
    return {**plain, "transforms": transforms}


def candidates(own: str | None, wanted: Sequence[str] | None, usual: Sequence[str]) -> list[str]:
    """The formats to try, the source's own first; ValueError if a lossy one is wanted that the source is not."""
    chosen = list(dict.fromkeys(([own] if own else []) + list(usual))) if wanted is None else list(wanted)
    for name in chosen:
        if not image_formats.parse(name)[0].lossless and name != own:
            raise ValueError(
                f"{name} would lose pixels: a plan keeps a lossy source's own files, and is lossless otherwise"
            )
    if not chosen:
        raise ValueError("name at least one format to try")
    return chosen
