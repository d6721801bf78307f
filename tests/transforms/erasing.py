# SPDX-License-Identifier: Apache-2.0
"""Random erasing and mixing as spec/recipe.md has them, in plain Python: their oracle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.transforms.philox import Key, below, philox, uniform, unit

F = np.float32
LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1)
LOG += (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
CENTER = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503)
CENTER += (-0.00417768164, 0.246640727, 1.50140941)
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613)
TAIL += (0.00943887047, 1.00167406, 2.83297682)


def horner(coefficients, x):
    total = F(coefficients[0])
    for each in coefficients[1:]:
        total = total * x + F(each)
    return total


def log_of(x):
    bits = x.view(np.int32) - np.int32(0x3F3504F3)
    e = (bits >> 23).astype(F)
    m = ((bits & np.int32(0x007FFFFF)) + np.int32(0x3F3504F3)).view(F) - F(1)
    square = m * m
    p = horner(LOG, m)
    return (m + ((p * m * square + e * F(-2.12194440e-4)) - F(0.5) * square)) + e * F(0.693359375)


def stream(key: tuple[int, int], n: int) -> npt.NDArray[np.uint32]:
    words = [word for block in range((n + 3) // 4) for word in philox((block, 0, 0, 0), key)]
    return np.array(words[:n], np.uint32)


def normal(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    x = ((words.view(np.int32) >> 8).astype(F) + F(0.5)) * F(2.0**-23)
    w = -log_of((F(1) - x) * (F(1) + x))
    middle = horner(CENTER, w - F(2.5))
    tail = horner(TAIL, np.sqrt(np.maximum(w, F(0))) - F(3))
    return np.where(np.abs(x) < F(0.99662536), middle, tail) * x * F(1.41421356)


def erase(image: npt.NDArray[Any], number: int, key: Key, given: dict[str, Any]) -> npt.NDArray[Any]:
    """Erase in a finished image [C, H, W]."""
    image = image.copy()
    channels, height, width = image.shape
    least, most = given["count"] if isinstance(given["count"], tuple) else (given["count"],) * 2
    words = key.words(number, 0)
    if not unit(words[0]) < given["p"]:
        return image
    count = least + below(words[1], most - least + 1)
    for k in range(count):
        for attempt in range(10):
            words = key.words(number, 1 + 10 * k + attempt)
            area = height * width * uniform(words[0], *given["scale"]) / count
            ratio = math.exp(uniform(words[1], *map(math.log, given["ratio"])))
            h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if h < height and w < width:
                top, left = below(words[2], height - h + 1), below(words[3], width - w + 1)
                image[:, top : top + h, left : left + w] = fill(image, (channels, h, w), k, number, key, given["value"])
                break
    return image


def fill(image, shape, k, number, key, value):
    if not isinstance(value, str):
        values = np.array(value if isinstance(value, tuple) else (value,), np.float64)
        values = values[np.minimum(np.arange(shape[0]), len(values) - 1)]
        if image.dtype.kind != "f":
            limits = np.iinfo(image.dtype)
            values = np.clip(np.rint(values), limits.min, limits.max)
        return np.broadcast_to(values.astype(image.dtype)[:, None, None], shape)
    n = shape[0] if value == "color" else math.prod(shape)
    words = stream(key.words(number, 1024 + k)[:2], n)
    numbers = normal(words) if image.dtype.kind == "f" else words >> np.uint32(32 - 8 * image.dtype.itemsize)
    made = numbers.astype(image.dtype)
    return np.broadcast_to(made[:, None, None], shape) if value == "color" else made.reshape(shape)


def beta(alpha: float, key: Key, number: int) -> float:
    for block in range(1, 4097):
        words = [(word + 0.5) / 2**32 for word in key.words(number, block)]
        for u, v in (words[:2], words[2:]):
            if alpha <= 1:
                x, y = math.log(u) / alpha, math.log(v) / alpha
                if math.exp(max(x, -700)) + math.exp(max(y, -700)) <= 1:
                    return 1 / (1 + math.exp(min(max(y - x, -700), 700)))
            else:
                scale = math.sqrt(1 / alpha)
                odds = scale * math.log(u / (1 - u))
                w, z, r = alpha * math.exp(odds), u * u * v, (alpha + 1 / scale) * odds - math.log(4)
                if alpha + r - w + 1 + math.log(5) >= 5 * z or (
                    r + 2 * alpha * math.log(2 * alpha / (alpha + w)) >= math.log(z)
                ):
                    return w / (alpha + w)
    raise AssertionError


def mix(
    images: npt.NDArray[Any], labels: npt.NDArray[np.float32], number: int, key: Key, options: Any
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """One transform of a batch on [B, C, H, W] and rows of labels, by torchvision's formulas."""
    words = key.words(number, 0)
    if not unit(words[0]) < options.probability:
        return images, labels
    both = options.mixup_alpha > 0 and options.cutmix_alpha > 0
    cuts = unit(words[1]) < options.switch_probability if both else options.cutmix_alpha > 0
    share = beta(options.cutmix_alpha if cuts else options.mixup_alpha, key, number)
    before = np.roll(images, 1, axis=0)
    if cuts:
        height, width = images.shape[2:]
        y, x, half = below(words[2], height), below(words[3], width), 0.5 * math.sqrt(1 - share)
        y0, y1 = max(y - int(half * height), 0), min(y + int(half * height), height)
        x0, x1 = max(x - int(half * width), 0), min(x + int(half * width), width)
        images = images.copy()
        images[:, :, y0:y1, x0:x1] = before[:, :, y0:y1, x0:x1]
        share = 1 - (y1 - y0) * (x1 - x0) / (height * width)
    else:
        mixed = before.astype(F) * F(1 - share) + images.astype(F) * F(share)
        images = mixed.astype(images.dtype)
    return images, np.roll(labels, 1, axis=0) * F(1 - share) + labels * F(share)
