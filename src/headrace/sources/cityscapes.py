# SPDX-License-Identifier: Apache-2.0
"""Cityscapes: street scenes with a label map each, matched by name.

leftImg8bit/<split>/<city>/<scene>_leftImg8bit.png
gtFine/<split>/<city>/<scene>_gtFine_labelIds.png
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.errors import BadSource
from headrace.sources._paths import Found, find, folders, join, read_file, walk
from headrace.sources._types import Encoded, Item, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMAGES, MASKS = "leftImg8bit", "gtFine"
_IMAGE_END, _MASK_END = "_leftImg8bit.png", "_gtFine_labelIds.png"


class CityscapesSource:
    """Images and masks of one split, or of all that are there; the mask holds label ids as the files have them."""

    kind = "cityscapes"
    sequential = False
    fields = {  # noqa: RUF012 - Source wants a Mapping, and nobody writes to it
        "image": "image",
        "mask": "mask",
        "split": "str",
        "city": "str",
    }
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
            for found in walk(self._root, f"{IMAGES}/{split}"):
                empty = False
                yield self._pair(split, found)
            yield from self._masks_alone(split)
        if empty:
            raise BadSource(f"{join(self._root, IMAGES)} holds no images in {', '.join(self._splits)}")

    def _pair(self, split: str, found: Found) -> Item:
        path = found.path
        city, _, name = path.removeprefix(f"{IMAGES}/{split}/").rpartition("/")
        if not city or not name.endswith(_IMAGE_END):
            problem = f"{join(self._root, path)} is not named <city>/<scene>{_IMAGE_END}"
            return found._replace(problem=found.problem or problem).item()
        mask = f"{MASKS}/{split}/{city}/{name.removesuffix(_IMAGE_END)}{_MASK_END}"
        if not os.path.lexists(join(self._root, mask)):
            problem = f"{join(self._root, path)} has no label map; {mask} is missing"
            return found._replace(problem=found.problem or problem).item()
        other = find(self._root, mask)
        both = Found(path, found.n_bytes + other.n_bytes, max(found.stamp, other.stamp), found.problem or other.problem)
        return both.item(split, city, found.n_bytes, mask, other.n_bytes, other.stamp)

    def _masks_alone(self, split: str) -> Iterator[Item]:
        for found in walk(self._root, f"{MASKS}/{split}"):
            if found.path.endswith(_MASK_END):
                image = f"{IMAGES}{found.path.removeprefix(MASKS).removesuffix(_MASK_END)}{_IMAGE_END}"
                if not os.path.lexists(join(self._root, image)):
                    problem = f"{join(self._root, found.path)} has no image; {image} is missing"
                    yield found._replace(problem=found.problem or problem).item()

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        split, city, image_bytes, mask, mask_bytes, _ = item.locator
        return {
            "image": self._read(item.key, image_bytes),
            "mask": self._read(mask, mask_bytes),
            "split": split,
            "city": city,
        }

    def _read(self, relative: str, n_bytes: int) -> Encoded:
        path = join(self._root, relative)
        return encoded(read_file(path, n_bytes), path)
