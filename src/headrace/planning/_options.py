# SPDX-License-Identifier: Apache-2.0
"""How the samples of a calibration are loaded: by a recipe, by a transform, or as most people load photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias

from headrace import formats as image_formats
from headrace.documents import load_json
from headrace.transforms import HorizontalFlip, Normalize, RandomResizedCrop, Recipe, Transform

RecipeSource: TypeAlias = Recipe | Mapping[str, Any] | str | PathLike[str]
"""A recipe, its JSON object, or the path of its JSON file."""

USUAL_CROP, USUAL_BATCH = 224, 64
FORMATS = ("hri:dense", "hri:fast", "raw")
"""Formats that are measured beside the source's own, unless others are named."""

# The usual values for photographs; they do not change the speed.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_RECIPE_OPTIONS = ("batch_size", "dtype", "layout", "color", "min_area", "approximate_jpeg")


def usual_transform(crop: int | None = None) -> list[Transform]:
    """Return the usual transforms for photographs: a random crop (224 pixels), a flip, and normalization."""
    return [RandomResizedCrop(crop or USUAL_CROP), HorizontalFlip(), Normalize(_MEAN, _STD)]


def loader_arguments(transform: Any, recipe: RecipeSource | None, batch_size: int | None) -> dict[str, Any]:
    """Return arguments for `Loader`. Batches are NumPy arrays: a calibration needs no framework."""
    if recipe is not None:
        if transform is not None or batch_size is not None:
            raise ValueError("a recipe has its own transforms and batch size: omit transform, crop and batch_size")
        read = recipe if isinstance(recipe, Recipe) else Recipe.from_json(load_json(recipe, "recipe"))
        options = {name: getattr(read, name) for name in _RECIPE_OPTIONS}
        return {**options, "transform": list(read.transforms), "fields": list(read.fields), "output": "numpy"}
    size = USUAL_BATCH if batch_size is None else batch_size
    if size < 1:
        raise ValueError(f"batch_size must be >= 1; got {size}")
    return {"transform": transform, "batch_size": size, "output": "numpy"}


def describe(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return loader arguments as JSON values; functions are given by name."""
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


def formats_to_measure(own: str | None, named: Sequence[str] | None) -> list[str]:
    """Return the formats to measure, the source's own first; a lossy format must be the source's own."""
    chosen = list(dict.fromkeys(([own] if own else []) + list(FORMATS))) if named is None else list(named)
    if not chosen:
        raise ValueError("formats must name at least one format")
    for name in chosen:
        if not image_formats.parse(name)[0].lossless and name != own:
            raise ValueError(f"formats must be lossless, or the source's own; got {name}, which would lose pixels")
    return chosen
