# SPDX-License-Identifier: Apache-2.0
"""What a profile was asked for, checked once; a smaller machine is emulated by affinity and by waiting."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

from headrace import transforms
from headrace.errors import ProfileError
from headrace.measuring import WATTS_PER_CORE
from headrace.planning import USUAL_BATCH, USUAL_CROP, parse_emulation, usual_transform
from headrace.profiling.stages._differential import Step, sleeping_step
from headrace.units import usable_cores

RecipeLike: TypeAlias = Mapping[str, Any] | str | PathLike[str]

FULL_SECONDS = 150.0
# A minute is promised: measurements overrun, and what is long is ended in time for the report.
QUICK_SECONDS, QUICK_LATEST = 32.0, 50.0


@dataclass(frozen=True, slots=True)
class Emulation:
    """What is emulated; None is as it is."""

    storage_rate: float | None = None
    """Bytes a second."""
    cores: int | None = None
    text: str | None = None
    """As the user wrote it."""

    @classmethod
    def parse(cls, text: str | None) -> Emulation:
        """Read `storage=200MB/s,cores=2`."""
        if text is None:
            return cls()
        found = parse_emulation(text)
        cores = found.get("cores")
        if cores is not None and cores != int(cores):
            raise ProfileError(f"{cores:g} cores cannot be emulated: a process has whole ones")
        return cls(found.get("storage_rate"), None if cores is None else int(cores), text)


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
    """More arguments for `Loader`."""
    words: tuple[str, ...] | None = None
    """Command-line options that mean the same; None if the transforms were given as Python objects."""


def read_recipe(recipe: RecipeLike | None, *, transform: Any, crop: int | None, batch_size: int | None) -> Making:
    """Read a recipe as a loader wrote it; or take a transform, or what most do with photographs."""
    for name, size in (("crop", crop), ("batch_size", batch_size)):
        if size is not None and size < 1:
            raise ProfileError(f"{name} is {size}; 1 or more is expected")
    if recipe is not None:
        if transform is not None or crop is not None:
            raise ProfileError("a recipe has transforms of its own: leave out transform and crop")
        found = transforms.Recipe.from_json(_document(recipe))
        compiling = ("color", "layout", "dtype", "approximate_jpeg")
        options = {name: getattr(found, name) for name in (*compiling, "min_area", "fields")}
        size = batch_size or found.batch_size
        return Making(list(found.transforms), size, options, _recipe_words(recipe, found.batch_size, batch_size))
    size = batch_size or USUAL_BATCH
    if transform is None:
        words = ("--crop", str(crop or USUAL_CROP), "--batch-size", str(size))
        return Making(usual_transform(crop), size, {}, words)
    if crop is not None:
        raise ProfileError("crop makes a transform of its own: give one of the two")
    return Making(transform, size, {})


def _recipe_words(recipe: RecipeLike, own_size: int, wanted_size: int | None) -> tuple[str, ...] | None:
    """A recipe in a file is an option; one with another batch size is not, for `headrace plan` takes no other."""
    if isinstance(recipe, Mapping) or wanted_size not in (None, own_size):
        return None
    return ("--recipe", os.fspath(recipe))


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


@contextmanager
def on_cores(wanted: int | None) -> Iterator[int]:
    """Hold this thread, and what it starts, to some of the cores that it may use; gives how many it then has."""
    there = usable_cores()
    if wanted is None:
        yield there
        return
    if not 1 <= wanted <= there:
        raise ProfileError(
            f"{wanted} cores cannot be emulated on a machine that has {there} for this process; "
            f"`headrace size` predicts larger machines"
        )
    if not hasattr(os, "sched_setaffinity"):
        yield wanted  # then the number of workers is all that can be held down
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:wanted])
    try:
        yield wanted
    finally:
        os.sched_setaffinity(0, before)


def core_counts(cores: int, asked: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """From one core to all, doubling; or those asked for that there are."""
    if asked:
        chosen = sorted({n for n in asked if n <= cores})
        if not chosen or min(asked) < 1:
            raise ProfileError(f"cores {', '.join(map(str, asked))} were asked for, and this process may use {cores}")
        return tuple(chosen)
    doubled = []
    n = 1
    while n < cores:
        doubled.append(n)
        n *= 2
    return (*doubled, cores)
