# SPDX-License-Identifier: Apache-2.0
"""Whole recipes with Headrace; the variant is the recipe's name. An operation that this version lacks is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import protocol

import headrace
from headrace import transforms as t

CLASSES = 1000


def crop(size: int, scale: tuple[float, float] = (0.08, 1.0)) -> list[t.Transform]:
    return [t.RandomResizedCrop(size, scale), t.HorizontalFlip()]


def end() -> list[t.Transform]:
    return [t.Normalize(protocol.MEAN, protocol.STD)]


def added(name: str) -> Any:
    """Return an operation by its name."""
    if not hasattr(t, name):
        raise SystemExit(f"this version of headrace has no {name}")
    return getattr(t, name)


def colors(p_blur: float, p_solarize: float = 0.0) -> list[t.Transform]:
    """Return SimCLR's colors as DINO uses them."""
    made: list[t.Transform] = [
        added("RandomApply")([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
        t.Grayscale(p=0.2),
        added("RandomApply")([added("GaussianBlur")(23, (0.1, 2.0))], p_blur),
    ]
    return [*made, added("Solarize")(128, p_solarize)] if p_solarize else made


def recipe(name: str, size: int) -> list[Any]:
    """Return the transforms of a recipe, or of a crop with one operation."""
    single = {
        "plain": lambda: (),
        "jitter": lambda: (t.ColorJitter(0.4, 0.4, 0.4, 0.1),),
        "grayscale": lambda: (t.Grayscale(p=0.2),),
        "blur": lambda: (added("GaussianBlur")(23, (0.1, 2.0)),),
        "solarize": lambda: (added("Solarize")(128, 1.0),),
        "rand_augment": lambda: (added("TimmAugment")("rand-m9-mstd0.5-inc1"),),
    }
    if name in single:
        return [*crop(size), *single[name](), *end()]
    last = {
        "erasing": [t.RandomErasing(1.0)],
        "erasing_random": [t.RandomErasing(1.0, value="random")],
        "mixup": [t.MixUp(0.8, CLASSES)],
        "cutmix": [t.CutMix(1.0, CLASSES)],
    }
    if name in last:
        return [*crop(size), *end(), *last[name]]
    if name == "deit":
        augmented = [
            *crop(size),
            *single["rand_augment"](),
            *end(),
            t.RandomErasing(0.25, (0.02, 1 / 3), value="random"),
        ]
        return [*augmented, t.MixUpCutMix(0.8, 1.0, num_classes=CLASSES)]
    if name == "simclr":
        return [t.Views(2, [*crop(size), *colors(0.5), *end()])]
    if name == "dino":
        first = t.View(1, [*crop(size, (0.4, 1.0)), *colors(1.0), *end()])
        second = t.View(1, [*crop(size, (0.4, 1.0)), *colors(0.1, 0.2), *end()])
        local = t.View(8, [*crop(96, (0.05, 0.4)), *colors(0.5), *end()])
        return [t.MultiCrop([first, second, local])]
    if name == "crops":  # DINO's crops without colors
        small = t.View(8, [*crop(96, (0.05, 0.4)), *end()])
        return [t.MultiCrop([t.View(2, [*crop(size, (0.4, 1.0)), *end()]), small])]
    raise SystemExit(f"there is no recipe {name}")


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    loader = headrace.Loader(
        job.data,
        batch_size=job.batch_size,
        shuffle=True,
        seed=job.seed,
        transform=recipe(job.variant, job.size),
        num_workers=job.workers,
        fields=["image", "label"],
    )
    with loader:
        for _ in range(job.epochs):
            yield ((first(batch["image"]), batch["label"]) for batch in loader)


def first(images: Any) -> Any:
    """Return the first view of each image, which is looked at."""
    group = images[0] if isinstance(images, list) else images
    return group if group.ndim == 4 else group[:, 0]


if __name__ == "__main__":
    protocol.main(load, libraries=("headrace", "torch", "numpy"))
