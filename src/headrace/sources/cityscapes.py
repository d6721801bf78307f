# SPDX-License-Identifier: Apache-2.0
"""Cityscapes: street scenes, each with a label map, matched by name.

leftImg8bit/<split>/<city>/<scene>_leftImg8bit.png
gtFine/<split>/<city>/<scene>_gtFine_labelIds.png
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.errors import BadSource
from headrace.sources._paths import Found, find, folders, join, list_images, read_image
from headrace.sources._types import Item

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMAGES, MASKS = "leftImg8bit", "gtFine"
_IMAGE_END, _MASK_END = "_leftImg8bit.png", "_gtFine_labelIds.png"


class CityscapesSource:
    """Images and masks of one split, or of all splits; masks have the label ids of the files."""

    kind = "cityscapes"
    sequential = False
    fields = {"image": "image", "mask": "mask", "split": "str", "city": "str"}  # noqa: RUF012 - never changed
    classes = None

    def __init__(self, root: str | Path, *, split: str | None = None) -> None:
        self._root = os.fspath(root)
        found = folders(join(self._root, IMAGES))
        if split is not None and split not in found:
            raise BadSource(f"{join(self._root, IMAGES)} has no split {split!r}; it has {', '.join(found)}")
        self._splits = (split,) if split is not None else tuple(found)

    def items(self) -> Iterator[Item]:
        empty = True
        for split in self._splits:
            for found in list_images(self._root, f"{IMAGES}/{split}"):
                empty = False
                yield self._pair(split, found)
            yield from self._masks_alone(split)
        if empty:
            raise BadSource(f"{join(self._root, IMAGES)} contains no images in {', '.join(self._splits)}")

    def _pair(self, split: str, found: Found) -> Item:
        path = found.path
        city, _, name = path.removeprefix(f"{IMAGES}/{split}/").rpartition("/")
        if not city or not name.endswith(_IMAGE_END):
            return found.unusable(f"{join(self._root, path)} must be named <city>/<scene>{_IMAGE_END}")
        mask = f"{MASKS}/{split}/{city}/{name.removesuffix(_IMAGE_END)}{_MASK_END}"
        if not os.path.lexists(join(self._root, mask)):
            return found.unusable(f"{join(self._root, path)} has no label map; {mask} is missing")
        other = find(self._root, mask)
        return found.with_mask(other).item(split, city, found.n_bytes, mask, other.n_bytes, other.stamp)

    def _masks_alone(self, split: str) -> Iterator[Item]:
        for found in list_images(self._root, f"{MASKS}/{split}"):
            if found.path.endswith(_MASK_END):
                image = f"{IMAGES}{found.path.removeprefix(MASKS).removesuffix(_MASK_END)}{_IMAGE_END}"
                if not os.path.lexists(join(self._root, image)):
                    yield found.unusable(f"{join(self._root, found.path)} has no image; {image} is missing")

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        split, city, image_bytes, mask, mask_bytes, _ = item.locator
        return {
            "image": read_image(self._root, item.key, image_bytes),
            "mask": read_image(self._root, mask, mask_bytes),
            "split": split,
            "city": city,
        }
