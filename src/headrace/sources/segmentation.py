# SPDX-License-Identifier: Apache-2.0
"""Images and their masks, in two folders or in one folder, matched by the stem of their names.

    images/ship/0001.jpg    masks/ship/0001.png         same path, other suffix
    images/0001.jpg         masks/0001_mask.png         with mask_suffix="_mask"
    0001.jpg                0001_mask.png               one folder, with mask_suffix="_mask"

If `images/` contains two or more folders and no images, the folders are classes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.errors import BadSource
from headrace.sources._paths import Found, folders, has_images, join, list_images, read_image
from headrace.sources._types import Ignored, Item

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMAGE_FOLDERS = ("images", "image", "imgs", "img", "JPEGImages")
MASK_FOLDERS = ("masks", "mask", "labels", "label", "annotations", "segmentations", "gt", "SegmentationClass")


class SegmentationSource:
    """Samples of an image and a mask; an image without a mask, or a mask without an image, is an item with a problem.

    Args:
        root: The folder with a folder of images and one of masks, or with images and masks together.
        mask_suffix: Text that a mask's stem has after its image's; by default detected from the first image.
        below: The folder in both, such as `train`, if only that is read.

    """

    kind = "segmentation"
    sequential = False

    def __init__(self, root: str | Path, mask_suffix: str | None = None, below: str = "") -> None:
        self._root = os.fspath(root)
        self._pair = pair_of_folders(self._root)
        if self._pair is None and mask_suffix is None:
            raise BadSource(
                f"{self._root} has no pair of folders such as images/ and masks/; if images and masks are in one "
                "folder, give the suffix of the masks: --mask-suffix _mask (mask_suffix='_mask')"
            )
        self._below = below
        if mask_suffix is None and self._pair is not None:
            mask_suffix = _guess_suffix(self._root, *self._sides())
        self._suffix = mask_suffix or ""
        self.classes = self._find_classes()
        self.fields = {"image": "image", "mask": "mask"} | ({} if self.classes is None else {"label": "int64"})
        self.ignored = Ignored()

    def _sides(self) -> tuple[str, str]:
        """Return the folders of images and of masks, relative to the root."""
        images, masks = self._pair or ("", "")
        return _join(images, self._below), _join(masks, self._below)

    def _find_classes(self) -> tuple[str, ...] | None:
        if self._pair is None:
            return None
        images = self._sides()[0]
        if any("/" not in found.path.removeprefix(f"{images}/") for found in list_images(self._root, images)):
            return None
        names = [name for name in folders(join(self._root, images)) if has_images(self._root, _join(images, name))]
        return tuple(names) if len(names) > 1 else None

    def items(self) -> Iterator[Item]:
        self.ignored = Ignored()
        images, masks = self._sides()
        partners = {_stem(found.path, masks): found for found in list_images(self._root, masks, self.ignored)}
        empty = True
        for found in list_images(self._root, images, self.ignored if images != masks else None):
            stem = _stem(found.path, images)
            if images == masks and stem.endswith(self._suffix):
                continue
            empty = False
            yield self._item(found, partners.pop(stem + self._suffix, None), stem)
        if empty:
            raise BadSource(f"{join(self._root, images)} contains no images")
        for stem, found in partners.items():
            if images != masks or stem.endswith(self._suffix):
                yield found.unusable(
                    f"{join(self._root, found.path)} is a mask without an image; remove it or add the image"
                )

    def _item(self, image: Found, mask: Found | None, stem: str) -> Item:
        if mask is None:
            return image.unusable(
                f"{join(self._root, image.path)} has no mask named {os.path.basename(stem)}{self._suffix}.*; "  # noqa: PTH119
                "if masks have another suffix, use --mask-suffix (mask_suffix=...)"
            )
        label = self.classes.index(stem.partition("/")[0]) if self.classes is not None else 0
        return image.with_mask(mask).item(image.n_bytes, mask.path, mask.n_bytes, label, mask.stamp)

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        image_bytes, mask, mask_bytes, label, _ = item.locator
        sample: dict[str, object] = {
            "image": read_image(self._root, item.key, image_bytes),
            "mask": read_image(self._root, mask, mask_bytes),
        }
        return sample if self.classes is None else {**sample, "label": label}


def pair_of_folders(root: str) -> tuple[str, str] | None:
    """Return the names of the folders of images and of masks, if a folder contains exactly one of each."""
    names = {name.lower(): name for name in folders(root)}
    pairs = [
        [names[name.lower()] for name in known if name.lower() in names] for known in (IMAGE_FOLDERS, MASK_FOLDERS)
    ]
    if [len(found) for found in pairs] != [1, 1]:
        return None
    images, masks = pairs[0][0], pairs[1][0]
    return (images, masks) if has_images(root, images) and has_images(root, masks) else None


def _guess_suffix(root: str, images: str, masks: str) -> str:
    """Return what the mask of the first image has after its image's stem: nothing, or text after a separator."""
    first = next(list_images(root, images), None)
    if first is None:
        return ""
    stem = _stem(first.path, images)
    longer = []
    for found in list_images(root, masks):
        rest = _stem(found.path, masks)
        if rest == stem:
            return ""
        if rest.startswith(stem) and not rest[len(stem)].isalnum() and "/" not in rest[len(stem) :]:
            longer.append(rest[len(stem) :])
    return longer[0] if len(longer) == 1 else ""


def _stem(path: str, below: str) -> str:
    relative = path.removeprefix(f"{below}/") if below else path
    return os.path.splitext(relative)[0]  # noqa: PTH122 - a Path per file costs ten times as much


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name
