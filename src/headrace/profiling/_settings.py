# SPDX-License-Identifier: Apache-2.0
"""What a profile was asked for, checked once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

from headrace import transforms
from headrace.errors import ProfileError
from headrace.profiling._differential import Step, sleeping_step
from headrace.profiling._emulate import Emulation
from headrace.profiling._energy import WATTS_PER_CORE

RecipeLike: TypeAlias = Mapping[str, Any] | str | PathLike[str]

DEFAULT_CROP = 224
DEFAULT_BATCH = 64
# What nearly everyone normalises photographs by; the figures do not change the speed.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

FULL_SECONDS = 150.0
# A minute is promised: measurements overrun, and what is long is ended in time for the report.
QUICK_SECONDS, QUICK_LATEST = 32.0, 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that a profile goes by, but what it is of."""

    step: Step | None
    stated_step: float | None
    """Seconds, where the user said them and the step is a wait."""
    cold: bool
    cores: int
    """That this process has, or has been held to."""
    core_counts: tuple[int, ...]
    emulation: Emulation
    quick: bool
    output: Literal["torch", "numpy"] = "numpy"
    """What batches are made of, where the profile makes the loader itself."""
    watts: float = WATTS_PER_CORE
    workdir: str | None = None


def read_step(step: Callable[[Any], Any] | float | None) -> tuple[Step | None, float | None]:
    """A trainer: a function of a batch, or the seconds that one would take."""
    if step is None or callable(step):
        return step, None
    seconds = float(step)
    if not 0 < seconds < 3600:
        raise ProfileError(f"a step of {seconds} seconds: give a function, or seconds as in 0.035")
    return sleeping_step(seconds), seconds


@dataclass(frozen=True, slots=True)
class Making:
    """How samples are to become batches, where the profile makes the loader itself."""

    transform: Any
    batch_size: int
    options: dict[str, Any]
    """More words for `Loader`."""


def read_recipe(recipe: RecipeLike | None, *, transform: Any, crop: int | None, batch_size: int | None) -> Making:
    """Read a recipe as a loader wrote it; or take a transform, or what most do with photographs."""
    if recipe is not None:
        if transform is not None or crop is not None:
            raise ProfileError("a recipe has transforms of its own: leave out transform and crop")
        found = transforms.Recipe.from_json(_document(recipe))
        compiling = ("color", "layout", "dtype", "approximate_jpeg")
        options = {name: getattr(found, name) for name in (*compiling, "min_area", "fields")}
        return Making(list(found.transforms), batch_size or found.batch_size, options)
    if transform is None:
        transform = [
            transforms.RandomResizedCrop(crop or DEFAULT_CROP),
            transforms.HorizontalFlip(),
            transforms.Normalize(_MEAN, _STD),
        ]
    elif crop is not None:
        raise ProfileError("crop makes a transform of its own: give one of the two")
    return Making(transform, batch_size or DEFAULT_BATCH, {})


def _document(recipe: RecipeLike) -> Mapping[str, Any]:
    if isinstance(recipe, Mapping):
        return recipe
    try:
        document: Mapping[str, Any] = json.loads(Path(recipe).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ProfileError(f"{recipe} is no JSON: {error}") from None
    return document


def refuse_needless(given: Mapping[str, Any], kind: str, instead: str) -> None:
    """Refuse words that mean nothing for a subject rather than ignore them."""
    words: Iterable[str] = [name for name, value in given.items() if value not in (None, False)]
    for name in words:
        raise ProfileError(f"{name} has no meaning for {kind}: {instead}")
