# SPDX-License-Identifier: Apache-2.0
"""Whole recipes with NVIDIA DALI on the CPU, with its auto_aug; the variant is the recipe's name.

What DALI lacks is done with PyTorch in the training process, as its users do: the mixing of a batch. Its erasing fills
with one value, not with noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pictures
import protocol
import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali import math as dali_math
from nvidia.dali.auto_aug import rand_augment
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

CLASSES = 1000
MANY = {"simclr": 2, "dino": 10, "crops": 10}


def crop(image: Any, size: int, scale: tuple[float, float] = pictures.AREA) -> Any:
    return fn.random_resized_crop(
        image, size=(size, size), random_area=scale, random_aspect_ratio=pictures.RATIO, antialias=True
    )


def chance(p: float) -> Any:
    return fn.random.coin_flip(probability=p, dtype=types.BOOL)


def jitter(image: Any, amounts: tuple[float, float, float, float]) -> Any:
    brightness, contrast, saturation, hue = amounts
    return fn.color_twist(
        image,
        brightness=fn.random.uniform(range=(1 - brightness, 1 + brightness)),
        contrast=fn.random.uniform(range=(1 - contrast, 1 + contrast)),
        saturation=fn.random.uniform(range=(1 - saturation, 1 + saturation)),
        hue=fn.random.uniform(range=(-360 * hue, 360 * hue)),
    )


def gray(image: Any, p: float) -> Any:
    return fn.hsv(image, saturation=1.0 - fn.cast(fn.random.coin_flip(probability=p), dtype=types.FLOAT))


def blur(image: Any) -> Any:
    return fn.gaussian_blur(image, sigma=fn.random.uniform(range=(0.1, 2.0)), window_size=23)


def solarize(image: Any) -> Any:
    inverted = types.Constant(255, dtype=types.UINT8) - image
    keep = fn.cast(image < 128, dtype=types.UINT8)
    return fn.cast(image * keep + inverted * (1 - keep), dtype=types.UINT8)


def end(image: Any, mirror: Any) -> Any:
    return fn.crop_mirror_normalize(
        image,
        dtype=types.FLOAT,
        output_layout="CHW",
        mirror=mirror,
        mean=[255 * value for value in protocol.MEAN],
        std=[255 * value for value in protocol.STD],
    )


def erased(image: Any, size: int) -> Any:
    """Erase one rectangle of a finished image [C, H, W]."""
    area = fn.random.uniform(range=(0.02, 1 / 3)) * float(size * size)
    ratio = dali_math.exp(fn.random.uniform(range=(math.log(0.3), math.log(1 / 0.3))))
    height = dali_math.min(dali_math.sqrt(area * ratio), float(size))
    width = dali_math.min(dali_math.sqrt(area / ratio), float(size))
    shape = fn.stack(height, width)
    anchor = fn.random.uniform(range=(0.0, 1.0), shape=[2]) * (float(size) - shape)
    return fn.erase(image, anchor=anchor, shape=shape, axes=(1, 2), fill_value=0.0)


def color_view(view: Any, p_blur: float, p_solarize: float) -> Any:
    """Change the colors of a view as DINO does."""
    if chance(0.8):
        view = jitter(view, (0.4, 0.4, 0.2, 0.1))
    view = gray(view, 0.2)
    if chance(p_blur):
        view = blur(view)
    if chance(p_solarize):
        view = solarize(view)
    return view


def make_views(encoded: Any, name: str, size: int) -> tuple[Any, ...]:
    """Decode the image once and make all views from it."""
    image = fn.decoders.image(encoded)
    plan = [(size, pictures.AREA, 0.5, 0.0)] * 2
    if name != "simclr":
        plan = [(size, (0.4, 1.0), 1.0, 0.0), (size, (0.4, 1.0), 0.1, 0.2), *[(96, (0.05, 0.4), 0.5, 0.0)] * 8]
    views = []
    for side, scale, p_blur, p_solarize in plan:
        view = crop(image, side, scale)
        if name != "crops":
            view = color_view(view, p_blur, p_solarize)
        views.append(end(view, fn.random.coin_flip()))
    return tuple(views)


def rand_augmented(image: Any, size: int) -> Any:
    return rand_augment.rand_augment(image, n=2, m=9, shape=(size, size), fill_value=128)


COLORS = {
    "jitter": lambda image, _: jitter(image, (0.4, 0.4, 0.4, 0.1)),
    "grayscale": lambda image, _: gray(image, 0.2),
    "blur": lambda image, _: blur(image),
    "solarize": lambda image, _: solarize(image),
    "rand_augment": rand_augmented,
    "deit": rand_augmented,
}


def make_one(encoded: Any, name: str, size: int) -> Any:
    """Decode the crop and make one view."""
    image = fn.decoders.image_random_crop(
        encoded, random_area=pictures.AREA, random_aspect_ratio=pictures.RATIO, num_attempts=10
    )
    image = fn.resize(image, size=(size, size), antialias=True)
    if name in COLORS:
        image = COLORS[name](image, size)
    image = end(image, fn.random.coin_flip())
    p = {"deit": 0.25, "erasing": 1.0}.get(name, 0.0)
    if p > 0:
        image = sometimes_erased(image, size, p)
    return image


def sometimes_erased(image: Any, size: int, p: float) -> Any:
    if chance(p):
        image = erased(image, size)
    return image


@pipeline_def(enable_conditionals=True)
def pipeline(job: protocol.Job) -> tuple[Any, ...]:
    files, labels = protocol.files_of(job.data)
    encoded, label = fn.readers.file(
        files=files,
        labels=labels,
        random_shuffle=True,
        initial_fill=len(files),
        pad_last_batch=True,
        seed=job.seed,
        name="files",
    )
    if job.variant in MANY:
        return (*make_views(encoded, job.variant, job.size), label)
    return make_one(encoded, job.variant, job.size), label


def mixed(name: str, images: torch.Tensor, labels: torch.Tensor, rng: np.random.Generator) -> tuple[Any, Any]:
    """Mix or cut a batch as timm does."""
    if name not in {"deit", "mixup", "cutmix"}:
        return images, labels
    smoothing = 0.1 if name == "deit" else 0.0
    targets = torch.full((len(labels), CLASSES), smoothing / CLASSES)
    targets.scatter_(1, labels.reshape(-1, 1).long(), 1 - smoothing + smoothing / CLASSES)
    cuts = name == "cutmix" or (name == "deit" and rng.random() < 0.5)
    share = float(rng.beta(1.0, 1.0) if cuts else rng.beta(0.8, 0.8))
    if cuts:
        height, width = images.shape[2:]
        half = 0.5 * math.sqrt(1 - share)
        y, x = int(rng.integers(height)), int(rng.integers(width))
        rows = slice(max(0, y - int(half * height)), min(height, y + int(half * height)))
        columns = slice(max(0, x - int(half * width)), min(width, x + int(half * width)))
        images[:, :, rows, columns] = images.flip(0)[:, :, rows, columns]
        share = 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)
    else:
        flipped = images.flip(0).mul_(1 - share)
        images.mul_(share).add_(flipped)
    return images, targets * share + targets.flip(0) * (1 - share)


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    pipe = pipeline(job, batch_size=job.batch_size, num_threads=job.workers, device_id=None, seed=job.seed)
    count = MANY.get(job.variant, 1)
    names = [*(f"view{number}" for number in range(count)), "label"]
    loader = DALIGenericIterator(
        pipe, names, reader_name="files", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True
    )
    rng = np.random.default_rng(job.seed)
    for _ in range(job.epochs):
        yield (mixed(job.variant, batch["view0"], batch["label"], rng) for (batch,) in loader)


if __name__ == "__main__":
    protocol.main(load, libraries=("nvidia-dali-cuda120", "torch"))
