# SPDX-License-Identifier: Apache-2.0
"""Whole recipes with PyTorch's DataLoader, Pillow and timm's augmentations; the variant is the recipe's name.

timm's data package imports torchvision. The three files that are needed here do not, so they are loaded by themselves.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pictures
import protocol
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch.utils.data import DataLoader, Dataset

CLASSES = 1000
Step = Callable[[Image.Image], Any]


def timm_file(name: str) -> ModuleType:
    """Load a file of timm.data without the package."""
    package = importlib.util.find_spec("timm")
    assert package is not None
    assert package.submodule_search_locations is not None
    path = Path(package.submodule_search_locations[0]) / "data" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"timm_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def crop(size: int, scale: tuple[float, float] = pictures.AREA) -> Step:
    """Return torchvision's random resized crop and flip, with Pillow."""

    def step(image: Image.Image) -> Image.Image:
        rng = np.random.default_rng(random.getrandbits(63))
        left, top, right, bottom = pictures.random_resized_box(image.height, image.width, rng, scale)
        image = image.crop((left, top, right, bottom)).resize((size, size), Image.Resampling.BILINEAR)
        return ImageOps.mirror(image) if random.random() < 0.5 else image

    return step


def jitter(brightness: float, contrast: float, saturation: float, hue: float) -> Step:
    """Return torchvision's ColorJitter, with Pillow."""
    enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)

    def turn(image: Image.Image) -> Image.Image:
        h, s, v = image.convert("HSV").split()
        shift = round(random.uniform(-hue, hue) * 255)
        h = Image.fromarray(np.asarray(h) + np.uint8(shift % 256))
        return Image.merge("HSV", (h, s, v)).convert("RGB")

    def step(image: Image.Image) -> Image.Image:
        steps: list[Step] = [turn] if hue else []
        for enhance, amount in zip(enhancers, (brightness, contrast, saturation), strict=True):
            factor = random.uniform(1 - amount, 1 + amount)
            steps.append(lambda image, enhance=enhance, factor=factor: enhance(image).enhance(factor))
        random.shuffle(steps)
        for each in steps:
            image = each(image)
        return image

    return step


def gray(p: float) -> Step:
    return sometimes(p, lambda image: image.convert("L").convert("RGB"))


def blur(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))


def solarize(image: Image.Image) -> Image.Image:
    return ImageOps.solarize(image, 128)


def sometimes(p: float, step: Step) -> Step:
    return lambda image: step(image) if random.random() < p else image


def end(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(pictures.normalise(np.asarray(image)))


def colors(p_blur: float, p_solarize: float = 0.0) -> list[Step]:
    made = [sometimes(0.8, jitter(0.4, 0.4, 0.2, 0.1)), gray(0.2), sometimes(p_blur, blur)]
    return [*made, sometimes(p_solarize, solarize)] if p_solarize else made


def erasing(p: float, mode: str) -> Step:
    made: Step = timm_file("random_erasing").RandomErasing(p, mode=mode, device="cpu")
    return made


def rand_augment() -> Step:
    hparams = {"translate_const": 100, "img_mean": tuple(round(255 * value) for value in protocol.MEAN)}
    made: Step = timm_file("auto_augment").rand_augment_transform("rand-m9-mstd0.5-inc1", hparams)
    return made


def views(name: str, size: int) -> list[list[Step]]:
    """Return the steps of each view."""
    single: dict[str, Callable[[], list[Step]]] = {
        "jitter": lambda: [jitter(0.4, 0.4, 0.4, 0.1), end],
        "grayscale": lambda: [gray(0.2), end],
        "blur": lambda: [blur, end],
        "solarize": lambda: [solarize, end],
        "rand_augment": lambda: [rand_augment(), end],
        "erasing": lambda: [end, erasing(1.0, "const")],
        "erasing_random": lambda: [end, erasing(1.0, "pixel")],
        "deit": lambda: [rand_augment(), end, erasing(0.25, "pixel")],
    }
    if name in {"plain", "mixup", "cutmix"}:
        return [[crop(size), end]]
    if name in single:
        return [[crop(size), *single[name]()]]
    if name == "simclr":
        return [[crop(size), *colors(0.5), end]] * 2
    large, small = crop(size, (0.4, 1.0)), crop(96, (0.05, 0.4))
    if name == "dino":
        return [[large, *colors(1.0), end], [large, *colors(0.1, 0.2), end], *[[small, *colors(0.5), end]] * 8]
    if name == "crops":
        return [[large, end]] * 2 + [[small, end]] * 8
    raise SystemExit(f"there is no recipe {name}")


class Folder(Dataset[tuple[Any, int]]):
    """Class folders; each image is decoded once for all of its views."""

    def __init__(self, job: protocol.Job) -> None:
        self.files, self.labels = protocol.files_of(job.data)
        self.views = views(job.variant, job.size)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = Image.open(self.files[index]).convert("RGB")
        made = []
        for steps in self.views:
            view: Any = image
            for step in steps:
                view = step(view)
            made.append(view)
        return made, self.labels[index]


def mixer(name: str) -> Any:
    """Return timm's Mixup for the recipe; None if it has none."""
    alphas = {"deit": (0.8, 1.0, 0.1), "mixup": (0.8, 0.0, 0.0), "cutmix": (0.0, 1.0, 0.0)}
    if name not in alphas:
        return None
    mixup, cutmix, smoothing = alphas[name]
    return timm_file("mixup").Mixup(mixup, cutmix, label_smoothing=smoothing, num_classes=CLASSES)


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    torch.manual_seed(job.seed)
    np.random.seed(job.seed)  # noqa: NPY002 - timm's Mixup draws from it
    loader = DataLoader(
        Folder(job), batch_size=job.batch_size, shuffle=True, num_workers=job.workers, persistent_workers=True
    )
    mix = mixer(job.variant)
    for _ in range(job.epochs):
        yield (mixed(mix, views[0], labels) for views, labels in loader)


def mixed(mix: Any, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # timm refuses odd batches, of which the last one may be one.
    if mix is None or len(images) % 2:
        return images, labels
    made: tuple[torch.Tensor, torch.Tensor] = mix(images, labels)
    return made


if __name__ == "__main__":
    protocol.main(load, libraries=("timm", "torch", "numpy", "pillow"))
