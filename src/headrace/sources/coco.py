# SPDX-License-Identifier: Apache-2.0
"""COCO: an `instances_*.json` and a folder of images; boxes become corners, category ids become labels from 0.

The segmentation, area, crowd flag and id of each object are kept. They belong to the boxes: if a crop removes a box,
they are removed too. A segmentation is a list of polygons, which move with the image; one that is run-length encoded
becomes the rectangles of its runs. Keypoints are a field if a category has them, as in `person_keypoints_*.json`; their
names and skeleton are recorded. Images without objects are samples too. The order is that of the image ids, as in
torchvision's CocoDetection.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import BadSource
from headrace.sources import _coco_json as coco_json
from headrace.sources._coco_shapes import keypoint_names, keypoints_of, polygons_of
from headrace.sources._paths import Found, checked_relative, find, read_image
from headrace.sources._types import Item

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.records.keypoints import Keypoints

_MAX_INT64 = 2**63 - 1


class CocoSource:
    """The images of a COCO annotation file.

    Args:
        annotations: The JSON file.
        images: The folder that its file names are relative to; by default searched in the usual places.

    The file is read when the source is made, and again for every listing after the first. Copies for workers do not
    contain it: each item carries its own annotations.

    """

    kind = "coco"
    sequential = False
    fields = {  # noqa: RUF012 - Source has a Mapping, and it is never changed
        "image": "image",
        "boxes": "boxes",
        "image_id": "int64",
        "annotation_id": "list<int64> of boxes",
        "area": "list<float32> of boxes",
        "iscrowd": "list<int64> of boxes",
        "segmentation": "polygons of boxes",
    }
    keypoints: Mapping[str, Keypoints] = {}

    def __init__(self, annotations: str | Path, images: str | Path | None = None) -> None:
        self._annotations = os.fspath(annotations)
        self._read: coco_json.Annotations | None = coco_json.read(self._annotations)
        categories = sorted(self._read.categories.items())
        self.classes = tuple(name for _, name in categories)
        if self._read.keypoints:
            self.fields = {**self.fields, "keypoints": "keypoints of boxes"}
            self.keypoints = keypoint_names(self._read.keypoints, self._annotations)
        self._labels = {number: label for label, (number, _) in enumerate(categories)}
        first = next(iter(self._read.images.values()), None)
        if first is None:
            raise BadSource(f"{self._annotations} lists no images")
        self._root = os.fspath(images) if images is not None else _find_images(Path(annotations), first)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None}

    def items(self) -> Iterator[Item]:
        annotations, self._read = self._read or coco_json.read(self._annotations), None
        changed = Path(self._annotations).stat().st_mtime_ns
        for image_id, name, text in annotations.by_image():
            found = self._found(image_id, name)
            yield found._replace(stamp=max(found.stamp, changed)).item(image_id, text)

    def _found(self, image_id: int, name: str) -> Found:
        where = f"{self._annotations}, image {image_id},"
        try:
            return find(self._root, checked_relative(name, where))
        except BadSource as error:
            return Found(f"image {image_id}", 0, 0, str(error))

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        image_id, text = item.locator
        objects = json.loads(text)
        where = f"{self._annotations}, image {image_id}"
        sample = {
            "image": read_image(self._root, item.key, item.n_bytes),
            "boxes": (_corners(objects, where), self._labels_of(objects, where)),
            "image_id": image_id,
            "annotation_id": [_number(found, "id", where) for found in objects],
            "area": [_number(found, "area", where, 0.0) for found in objects],
            "iscrowd": [int(_number(found, "iscrowd", where, 0)) for found in objects],
            "segmentation": [polygons_of(found.get("segmentation"), where) for found in objects],
        }
        if "keypoints" in self.fields:
            sample["keypoints"] = [keypoints_of(found.get("keypoints"), where) for found in objects]
        return sample

    def _labels_of(self, objects: list[dict[str, Any]], where: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        numbers: list[Any] = [found.get("category_id") for found in objects]
        unknown = [number for number in numbers if not isinstance(number, int) or number not in self._labels]
        if unknown:
            raise BadSource(f"{where}: category {unknown[0]!r} is not in categories")
        return np.array([self._labels[number] for number in numbers], np.int64)


def _corners(objects: list[dict[str, Any]], where: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Convert x, y, width, height to x0, y0, x1, y1, in double precision."""
    try:
        boxes = np.array([found["bbox"] for found in objects], np.float64).reshape(len(objects), 4)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BadSource(f"{where}: the bbox of an annotation must be four numbers") from None
    if not np.isfinite(boxes).all():
        raise BadSource(f"{where}: a bbox must be finite")
    boxes[:, 2:] += boxes[:, :2]
    return boxes.astype(np.float32)


def _number(found: dict[str, Any], name: str, where: str, default: float | None = None) -> Any:
    value = found.get(name, default)
    if not isinstance(value, (int, float)):
        raise BadSource(f"{where}: {name} of an annotation must be a number; got {str(value)[:40]!r}")
    if not -_MAX_INT64 <= value <= _MAX_INT64:  # false for NaN, too
        raise BadSource(f"{where}: {name} of an annotation must be finite and fit in 64 bits; got {str(value)[:40]}")
    return value


def _find_images(annotations: Path, first: str) -> str:
    """Return the folder with the first image, among the usual ones."""
    first = checked_relative(first, str(annotations))
    folder = annotations.absolute().parent
    split = annotations.stem.rpartition("_")[2]
    candidates = [
        base / place for base in (folder.parent, folder) for place in (split, f"images/{split}", "images", "")
    ]
    for candidate in candidates:
        if (candidate / first).is_file():
            return str(candidate)
    raise BadSource(
        f"{annotations} lists the image {first!r}, which is not in {', '.join(map(str, candidates))}; "
        "give the folder of the images: CocoSource(annotations, images)"
    )
