# SPDX-License-Identifier: Apache-2.0
"""Cityscapes: street scenes with a label map each, matched by name.

leftImg8bit/<split>/<city>/<scene>_leftImg8bit.png
gtFine/<split>/<city>/<scene>_gtFine_labelIds.png
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.errors import BadSource
from headrace.sources._paths import file_size, folders, join, read_file, walk
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
            for path, n_bytes in walk(self._root, f"{IMAGES}/{split}"):
                empty = False
                yield self._pair(split, path, n_bytes)
            self._check_masks(split)
        if empty:
            raise BadSource(f"{join(self._root, IMAGES)} holds no images in {', '.join(self._splits)}")

    def _pair(self, split: str, path: str, n_bytes: int) -> Item:
        city, _, name = path.removeprefix(f"{IMAGES}/{split}/").rpartition("/")
        if not city or not name.endswith(_IMAGE_END):
            raise BadSource(f"{join(self._root, path)} is not named <city>/<scene>{_IMAGE_END}")
        mask = f"{MASKS}/{split}/{city}/{name.removesuffix(_IMAGE_END)}{_MASK_END}"
        if not os.path.lexists(join(self._root, mask)):
            raise BadSource(f"{join(self._root, path)} has no label map; {mask} is missing")
        mask_bytes = file_size(self._root, mask)
        return Item(path, n_bytes + mask_bytes, (split, city, n_bytes, mask, mask_bytes))

    def _check_masks(self, split: str) -> None:
        for path, _ in walk(self._root, f"{MASKS}/{split}"):
            if path.endswith(_MASK_END):
                image = f"{IMAGES}{path.removeprefix(MASKS).removesuffix(_MASK_END)}{_IMAGE_END}"
                if not os.path.lexists(join(self._root, image)):
                    raise BadSource(f"{join(self._root, path)} has no image; {image} is missing")

    def load(self, item: Item) -> dict[str, object]:
        split, city, image_bytes, mask, mask_bytes = item.locator
        return {
            "image": self._read(item.key, image_bytes),
            "mask": self._read(mask, mask_bytes),
            "split": split,
            "city": city,
        }

    def _read(self, relative: str, n_bytes: int) -> Encoded:
        path = join(self._root, relative)
        return encoded(read_file(path, n_bytes), path)
