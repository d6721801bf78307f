# SPDX-License-Identifier: Apache-2.0
"""Transforms on one image in memory: to look at what they do, and for loops without a dataset."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.transforms._base import Transform
from headrace.transforms._compile import Compiled, compile  # noqa: A004
from headrace.transforms._composition import Views, view_transforms
from headrace.transforms._multicrop import MultiCrop

_MODES = ("L", "RGB", "RGBA", "I;16")  # Pillow's, whose arrays are used as they are; others become RGB


class Compose:
    """A list of transforms as one: `Compose([...])(image)` applies them to an image; a loader takes it as the list."""

    def __init__(self, transforms: Iterable[Transform]) -> None:
        self.transforms = view_transforms("Compose", transforms, nested=True)

    def __call__(self, image: Any, *, seed: int = 0, epoch: int = 0, sample: int = 0, view: int = 0) -> Any:
        """Return the transformed image, as the transforms do."""
        return apply_to_image(self.transforms, image, seed=seed, epoch=epoch, sample=sample, view=view)

    def __repr__(self) -> str:
        return f"Compose({list(self.transforms)!r})"


def apply_to_image(
    transforms: tuple[Transform, ...], image: Any, *, seed: int, epoch: int, sample: int, view: int
) -> Any:
    """Apply transforms to a NumPy image `[H, W]` or `[H, W, C]` or to a PIL image; the result is of the same kind.

    After `Normalize`, it is an array of floats `[H, W, C]` also for a PIL image. `Views` gives a list of images, and
    `MultiCrop` a list per group. The draws are those of row `sample` of a dataset.
    """
    compiled = _compiled(transforms)
    pillow = sys.modules.get("PIL.Image")  # if it was never imported, the image is not one of its
    is_pillow = pillow is not None and isinstance(image, pillow.Image)
    if is_pillow and image.mode not in _MODES:
        image = image.convert("L" if image.mode == "1" else "RGB")
    pixels = np.ascontiguousarray(image)

    def one(number: int) -> Any:
        core = compiled.group_of(number).image
        made: Any = core.apply(pixels, seed=seed, epoch=epoch, sample=sample, view=view + number)
        if pixels.ndim == 2 and made.shape[2] == 1:
            made = made[..., 0]
        return _to_pillow(pillow, made) if is_pillow else made

    if not any(isinstance(item, (Views, MultiCrop)) for item in transforms):
        return one(0)
    numbers = iter(range(compiled.views))
    groups = [[one(next(numbers)) for _ in range(group.n)] for group in compiled.groups]
    return groups if len(groups) > 1 else groups[0]


@lru_cache(maxsize=64)
def _compiled(transforms: tuple[Transform, ...]) -> Compiled:
    compiled = compile(transforms, layout="HWC", color="keep")
    if compiled.tiles is not None:
        raise TypeError("Mosaic needs further samples: use it in headrace.Loader or headrace.open")
    if compiled.mixes:
        raise TypeError(f"{type(compiled.mixes[0]).__name__} needs a batch: call it with images and labels")
    return compiled


def _to_pillow(pillow: Any, made: npt.NDArray[Any]) -> Any:
    plain = made[..., 0] if made.ndim == 3 and made.shape[2] == 1 else made
    if plain.dtype == np.uint8 or (plain.dtype == np.uint16 and plain.ndim == 2):
        return pillow.fromarray(plain)
    return made
