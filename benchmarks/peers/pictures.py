# SPDX-License-Identifier: Apache-2.0
"""From encoded bytes to a normalised crop in NumPy, for the peers that leave that to their users.

The random crops are torchvision's: ten tries at an area of 8 to 100 % and a ratio of 3/4 to 4/3, then the centre.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from protocol import MEAN, STD

AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)

Pixels = npt.NDArray[np.float32]
Step = Callable[[bytes, np.random.Generator], Pixels]

# x / 255, less the mean, over the deviation: one multiplication and one addition.
_SCALE = (1 / (255 * np.array(STD)))[:, None, None].astype(np.float32)
_SHIFT = (-np.array(MEAN) / np.array(STD))[:, None, None].astype(np.float32)


def normalise(image: npt.NDArray[np.uint8]) -> Pixels:
    """uint8 HWC to float32 CHW."""
    out = np.empty((3, *image.shape[:2]), np.float32)
    np.multiply(image.transpose(2, 0, 1), _SCALE, out=out)
    out += _SHIFT
    return out


def box(crop: str, size: int, height: int, width: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the crop."""
    if crop == "random-resized":
        return random_resized_box(height, width, rng)
    free = height - size, width - size
    top, left = (int(rng.integers(0, room + 1)) for room in free) if crop == "random" else (room // 2 for room in free)
    return left, top, left + size, top + size


def random_resized_box(
    height: int, width: int, rng: np.random.Generator, scale: tuple[float, float] = AREA
) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = height * width * rng.uniform(*scale)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(rng.integers(0, width - wide + 1)), int(rng.integers(0, height - high + 1))
            return left, top, left + wide, top + high
    ratio = min(max(width / height, RATIO[0]), RATIO[1])
    wide, high = min(width, round(height * ratio)), min(height, round(width / ratio))
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high


def with_pillow(crop: str, size: int) -> Step:
    """Pillow's decoder, crop and antialiased bilinear resize."""
    from PIL import Image  # noqa: PLC0415 - not every peer's environment has it

    def step(contents: bytes, rng: np.random.Generator) -> Pixels:
        image = Image.open(io.BytesIO(contents)).convert("RGB")
        part = image.crop(box(crop, size, image.height, image.width, rng))
        if part.size != (size, size):
            part = part.resize((size, size), Image.Resampling.BILINEAR)
        return normalise(np.asarray(part))

    return step


def with_cv2(crop: str, size: int) -> Step:
    """OpenCV's decoder, crop and bilinear resize, which does not antialias."""
    import cv2  # noqa: PLC0415 - not every peer's environment has it

    cv2.setNumThreads(0)  # the loader's workers are the threads

    def step(contents: bytes, rng: np.random.Generator) -> Pixels:
        image = cv2.imdecode(np.frombuffer(contents, np.uint8), cv2.IMREAD_COLOR_RGB)
        left, top, right, bottom = box(crop, size, *image.shape[:2], rng)
        part = image[top:bottom, left:right]
        if part.shape[:2] != (size, size):
            part = cv2.resize(part, (size, size), interpolation=cv2.INTER_LINEAR)
        return normalise(part)

    return step
