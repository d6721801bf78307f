# SPDX-License-Identifier: Apache-2.0
"""The images of a YOLO dataset with their boxes, polygons or keypoints in pixels.

The labels of `images/train/a.jpg` are `labels/train/a.txt`. An image without that file has no objects. Coordinates are
shares of the upright image, as Ultralytics reads it: if images have an EXIF orientation, build with
`apply_orientation=True`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace import formats
from headrace.errors import BadSource
from headrace.sources._paths import Found, checked_relative, find, join, list_images, nonempty, read_image, read_range
from headrace.sources._splits import SplitSource, chosen
from headrace.sources._types import Ignored, Item
from headrace.sources.yolo._data_yaml import LABEL_SUFFIX, LABELS, DataYaml, listed_images, read_yaml
from headrace.sources.yolo._labels import MAX_LABEL_BYTES, Labels, is_polygon, parse_labels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.sources._types import Encoded, Source

_TURNED = 5  # from this EXIF orientation on, width and height are exchanged
_PEEK = 1000  # label files in which to look for polygons


class YoloSource:
    """One split of a YOLO dataset.

    Args:
        data: What `data.yaml` says.
        split: The name of the split.

    With `kpt_shape` in `data.yaml`, each box has `keypoints`. If a label file has polygons, each box has its polygon,
    or none, in `segmentation`.

    """

    kind = "yolo"
    sequential = False

    def __init__(self, data: DataYaml, split: str, *, has_polygons: bool | None = None) -> None:
        self._data, self._split, self._root = data, split, data.root
        self.classes = data.classes
        self.ignored = Ignored()
        self.has_polygons = self._find_polygons() if has_polygons is None else has_polygons
        self.fields = {"image": "image", "boxes": "boxes"}
        if data.keypoints is not None:
            self.fields["keypoints"] = "keypoints of boxes"
        elif self.has_polygons:
            self.fields["segmentation"] = "polygons of boxes"

    def _find_polygons(self) -> bool:
        if self._data.keypoints is not None:
            return False
        for number, found in enumerate(self._images()):
            if number == _PEEK:
                break
            labels = label_file(found.path)
            if os.path.isfile(join(self._root, labels)):  # noqa: PTH113 - a Path per file is slow
                text = read_range(join(self._root, labels), 0, 1 << 16).decode(errors="replace")
                if any(is_polygon(line) for line in text.splitlines()):
                    return True
        return False

    def _images(self) -> Iterator[Found]:
        for place in self._data.splits[self._split]:
            if place.lower().endswith(LABEL_SUFFIX):
                for name in listed_images(self._root, place):
                    yield self._listed(name, place)
            else:
                yield from list_images(self._root, "" if place == "." else place, self.ignored)

    def _listed(self, name: str, place: str) -> Found:
        try:
            return find(self._root, checked_relative(name, join(self._root, place)))
        except BadSource as error:
            return Found(name[:200], 0, 0, str(error))

    def items(self) -> Iterator[Item]:
        self.ignored = Ignored()
        for found in nonempty(self._images(), f"{self._root}: split {self._split!r} contains no images"):
            path = label_file(found.path)
            if found.problem is None and os.path.lexists(join(self._root, path)):
                labels = find(self._root, path)
                stamp, problem = max(found.stamp, labels.stamp), labels.problem
                yield found._replace(stamp=stamp, problem=problem).item(found.n_bytes, path, labels.n_bytes)
            else:
                yield found.item(found.n_bytes, "", 0)

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        n_bytes, path, label_bytes = item.locator
        image = read_image(self._root, item.key, n_bytes)
        found = self._labels(image, path, label_bytes)
        sample: dict[str, Any] = {"image": image, "boxes": (found.boxes, found.classes)}
        others = {"keypoints": found.keypoints, "segmentation": found.polygons}
        return {name: sample[name] if name in sample else others[name] for name in self.fields}

    def _labels(self, image: Encoded, path: str, n_bytes: int) -> Labels:
        where = join(self._root, path)
        if n_bytes > MAX_LABEL_BYTES:
            raise BadSource(f"{where} has {n_bytes} bytes; a label file must have at most {MAX_LABEL_BYTES}")
        text = read_range(where, 0, n_bytes).decode(errors="replace") if path else ""
        width, height = _upright_size(image) if text.strip() else (1, 1)
        n_classes = None if self.classes is None else len(self.classes)
        found = parse_labels(text, width, height, keypoints=self._data.keypoints, n_classes=n_classes, where=where)
        if any(found.polygons) and "segmentation" not in self.fields:
            raise BadSource(
                f"{where} has polygons, but the first {_PEEK} label files have boxes only: list this image first"
            )
        return found


def label_file(image: str) -> str:
    """Return the label file of an image: the last folder `images` of its path becomes `labels`."""
    folder, _, name = image.rpartition("/")
    parts = folder.split("/") if folder else []
    for at in range(len(parts) - 1, -1, -1):
        if parts[at] == "images":
            parts[at] = LABELS
            break
    return "/".join([*parts, os.path.splitext(name)[0] + LABEL_SUFFIX])  # noqa: PTH122 - a Path per file is slow


def _upright_size(image: Encoded) -> tuple[int, int]:
    """Return width and height of an image after its EXIF orientation is applied."""
    if image.format is None:
        height, width = formats.decode(image.data).shape[:2]
        return width, height
    shape = formats.get(image.format).probe(image.data)
    turned = formats.orientation(image.data) >= _TURNED
    return (shape.height, shape.width) if turned else (shape.width, shape.height)


def open_yolo(path: Path, split: str | None = None) -> Source:
    """Open a dataset, or one split of it."""
    data = read_yaml(path, split)
    if split is not None:
        chosen(data.splits, split, path)
        return YoloSource(data, split)
    parts = {name: YoloSource(data, name) for name in data.splits}
    if len(parts) == 1:
        return next(iter(parts.values()))
    if len({part.has_polygons for part in parts.values()}) > 1:
        parts = {name: YoloSource(data, name, has_polygons=True) for name in parts}
    return SplitSource(parts)
