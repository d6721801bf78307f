# SPDX-License-Identifier: Apache-2.0
"""A loader's recipe: all that decides what is in its batches, for others to make the same (spec/recipe.md)."""

from __future__ import annotations

from typing import Any

from headrace.loader._options import Options
from headrace.loader._state import LoaderState
from headrace.transforms import Compiled, Recipe


def make_recipe(
    options: Options, compiled: Compiled, run: LoaderState, *, world_size: int, functions: bool = False
) -> dict[str, Any]:
    """Write the recipe down; ValueError if functions are part of the transform, which are no data.

    `run` is any state of the loader: what its order depends on is the same in all. With `functions` they are left out:
    somebody else calls them on what the recipe makes.
    """
    if not functions:
        compiled.to_json()  # names the function, if there is one
    recipe = Recipe(
        fields=options.fields,
        transforms=compiled.transforms,
        seed=run.seed,
        batch_size=options.batch_size,
        fingerprint=run.fingerprint,
        world_size=world_size,
        shuffle=run.shuffle,
        drop_last=options.drop_last,
        dtype=compiled.dtype,
        layout=options.layout,
        color=options.color,
        min_area=options.min_area,
        approximate_jpeg=options.approximate_jpeg,
        selection=run.selection,
    )
    return recipe.to_json()
