# SPDX-License-Identifier: Apache-2.0
"""A picture of what transforms make of images: a row for each image, a column for each draw."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.transforms._base import Transform
from headrace.transforms._color import Normalize
from headrace.transforms._compile import Compiled, compile  # noqa: A004
from headrace.transforms._composition import BATCH_STAGE, Views
from headrace.transforms._multicrop import MultiCrop
from headrace.transforms._recipe import from_json

if TYPE_CHECKING:
    from PIL import Image

_GAP = 4  # pixels between the images
_BOX_COLOR = (255, 64, 64)


class Sample(NamedTuple):
    """An image `[H, W, C]`, the row of a dataset whose draws it gets, and its boxes if it has any."""

    image: npt.NDArray[Any]
    row: int = 0
    boxes: Any = None


def parse_transforms(text: str | bytes) -> tuple[Transform, ...]:
    """Return the transforms of a recipe or a JSON list of them, without those of batches and `Mosaic`."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the recipe is not valid JSON: {error}") from None
    listed = document.get("transforms") if isinstance(document, Mapping) else document
    if not isinstance(listed, list):
        raise ValueError("a recipe must be an object with the member transforms, or a list of transforms")
    made = tuple(map(from_json, listed))
    return tuple(item for item in made if item.stage < BATCH_STAGE and item.op != "mosaic")


def make_preview(
    transforms: Sequence[Transform], samples: Sequence[Sample], *, draws: int, seed: int, epoch: int, cell: int
) -> Image.Image:
    """Return a picture with a row for each sample: the image as it is, then as in `draws` epochs from `epoch` on.

    Each image is fitted into `cell` x `cell` pixels. An epoch shows all views of a sample. Boxes are drawn.
    """
    compiled = compile(tuple(transforms), layout="HWC")
    rows = []
    for sample in samples:
        row = [_shown(sample.image, None, sample.boxes, cell)]
        for number in range(epoch, epoch + draws):
            row += [
                _made(compiled, sample, cell, {"seed": seed, "epoch": number, "sample": sample.row, "view": view})
                for view in range(compiled.views)
            ]
        rows.append(row)
    return _grid(rows, cell)


def _made(compiled: Compiled, sample: Sample, cell: int, key: dict[str, int]) -> Image.Image:
    boxes = sample.boxes
    corners = None if boxes is None else np.ascontiguousarray(boxes.xyxy, np.float32)
    pixels: Any = compiled.group_of(key["view"]).image.apply(sample.image, **key, boxes=corners)
    if boxes is not None:
        boxes, _ = compiled.boxes_kept(boxes, *sample.image.shape[:2], **key)
    return _shown(pixels, _normalize(compiled, key["view"]), boxes, cell)


def _normalize(compiled: Compiled, view: int) -> Normalize | None:
    inner = compiled.transforms
    if inner and isinstance(inner[0], Views):
        inner = tuple(inner[0].transforms)
    elif inner and isinstance(inner[0], MultiCrop):
        groups = [group for group in inner[0].views for _ in range(group.n)]
        inner = tuple(groups[view].transforms)
    return next((item for item in inner if isinstance(item, Normalize)), None)


def _shown(pixels: npt.NDArray[Any], normalize: Normalize | None, boxes: Any, cell: int) -> Image.Image:
    """Return an image as RGB in 8 bits, fitted into its cell, with its boxes."""
    from PIL import Image, ImageDraw  # noqa: PLC0415 - slow to import

    levels = np.asarray(pixels if pixels.ndim == 3 else pixels[..., None])
    if levels.dtype.kind == "f":
        scaled = levels.astype(np.float32)
        if normalize is not None:
            scaled = scaled * np.asarray(normalize.std, np.float32) + np.asarray(normalize.mean, np.float32)
        levels = np.rint(np.clip(scaled, 0, 1) * 255)
    elif levels.dtype.itemsize == 2:
        levels = np.maximum(levels, 0) >> (7 if levels.dtype.kind == "i" else 8)
    three = levels[..., :3] if levels.shape[2] >= 3 else np.repeat(levels[..., :1], 3, axis=2)
    image = Image.fromarray(np.ascontiguousarray(three.astype(np.uint8)))
    scale = min(cell / image.width, cell / image.height)
    image = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    if boxes is not None:
        draw = ImageDraw.Draw(image)
        for corners in np.asarray(boxes.xyxy, np.float64) * scale:
            draw.rectangle(corners.tolist(), outline=_BOX_COLOR)
    return image


def _grid(rows: Sequence[Sequence[Image.Image]], cell: int) -> Image.Image:
    from PIL import Image  # noqa: PLC0415 - slow to import

    step = cell + _GAP
    columns = max(map(len, rows), default=0)
    grid = Image.new("RGB", (columns * step + _GAP, len(rows) * step + _GAP), "white")
    for y, row in enumerate(rows):
        for x, image in enumerate(row):
            left, top = (cell - image.width) // 2, (cell - image.height) // 2
            grid.paste(image, (_GAP + x * step + left, _GAP + y * step + top))
    return grid
