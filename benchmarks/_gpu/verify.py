# SPDX-License-Identifier: Apache-2.0
"""The green gate: no speed is told of a decoder that gives other pixels than the CPU's."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headrace
from benchmarks._codec.images import Pixels
from benchmarks._gpu.pictures import deepened
from headrace import kernels
from headrace.transforms import HorizontalFlip, Normalize, RandomCrop, RandomResizedCrop

MODES = ("fast", "dense")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def verify(pictures: Sequence[Pixels], device: str) -> list[str]:
    """Compare what the device makes with what the CPU makes; give a line for each comparison that was made.

    Raises:
        AssertionError: They differ; the message says where.

    """
    told = []
    for depth, images in ((8, pictures), (16, [deepened(picture) for picture in pictures])):
        for mode in MODES:
            _images_agree(images, mode, device)
            told.append(f"hri:{mode}, {depth} bits: {len(images)} images and crops are equal, bit for bit")
    told += _epochs_agree(pictures, device)
    return told


def _images_agree(images: Sequence[Pixels], mode: Any, device: str) -> None:
    datas = [headrace.encode(image, mode=mode) for image in images]
    for image, found in zip(images, kernels.decode_batch(datas, device=device), strict=True):
        _equal(found, np.moveaxis(image, 2, 0), f"hri:{mode}")
    rng = np.random.default_rng(1)
    crops = [_crop(rng, *image.shape[:2]) for image in images]
    flips = [bool(rng.integers(2)) for _ in images]
    found_crops = kernels.decode_batch(datas, regions=crops, flips=flips, device=device)
    for image, (top, left, height, width), flip, found in zip(images, crops, flips, found_crops, strict=True):
        expected = image[top : top + height, left : left + width]
        _equal(found, np.moveaxis(expected[:, ::-1] if flip else expected, 2, 0), f"a crop of hri:{mode}")


def _crop(rng: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
    rows, columns = int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1))
    return int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1)), rows, columns


def _equal(found: torch.Tensor, expected: Pixels, what: str) -> None:
    same = np.array_equal(found.cpu().numpy(), expected)
    assert same, f"{what}: the device's pixels are not the CPU's"


def _epochs_agree(pictures: Sequence[Pixels], device: str) -> list[str]:
    side = min(min(picture.shape[:2]) for picture in pictures)
    crop = [RandomCrop(max(1, side // 2)), HorizontalFlip(), Normalize(MEAN, STD)]
    resized = [RandomResizedCrop(max(1, side // 2)), HorizontalFlip(), Normalize(MEAN, STD)]
    with tempfile.TemporaryDirectory() as folder:
        path = write_dataset(Path(folder) / "verify.hr", pictures, ("hri:fast", "hri:dense", "png"))
        exact = _worst_difference(path, crop, device)
        assert exact == 0, f"an epoch of crops: values differ by up to {exact}"
        worst = _worst_difference(path, resized, device)
        assert worst <= (1 / 255 + 1e-6) / min(STD), f"an epoch of resized crops: values differ by up to {worst}"
    return [
        "an epoch of normalised crops of mixed formats is equal, bit for bit",
        f"an epoch of resized crops is equal within a level ({worst * min(STD) * 255:.2f} levels)",
    ]


def write_dataset(path: Path, pictures: Sequence[Pixels], formats: Sequence[str]) -> Path:
    """A dataset of the pictures, an equal share in each of the formats."""
    shares = [{"format": form, "share": 1 / len(formats)} for form in formats]
    plan = {"version": 1, "fields": {"image": {"renditions": 1, "shares": shares}}}
    with headrace.Writer(path, fields={"image": "image"}, plan=plan) as writer:
        for number, picture in enumerate(pictures):
            writer.write({"image": picture}, key=f"picture/{number}")
    return path


def _worst_difference(path: Path, transform: Sequence[Any], device: str) -> float:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3, "transform": list(transform)}
    worst = 0.0
    with (
        headrace.Loader(path, decode="cpu", **options) as on_cpu,
        headrace.Loader(path, decode="device", device=device, **options) as on_device,
    ):
        for expected, found in zip(on_cpu, on_device, strict=True):
            worst = max(worst, float((found["image"].cpu() - expected["image"]).abs().max()))
    return worst
