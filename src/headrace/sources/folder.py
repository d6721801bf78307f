# SPDX-License-Identifier: Apache-2.0
"""A folder of images, at any depth; and class folders, one folder per class, as torchvision's ImageFolder reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.errors import BadSource
from headrace.sources._paths import folders, join, list_images, nonempty, read_image
from headrace.sources._types import Ignored, Item

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class FolderSource:
    """Every image under a folder, ordered by the bytes of its path."""

    kind = "folder"
    sequential = False
    fields = {"image": "image"}  # noqa: RUF012 - Source has a Mapping, and it is never changed
    classes = None

    def __init__(self, root: str | Path) -> None:
        self._root = os.fspath(root)
        self.ignored = Ignored()

    def items(self) -> Iterator[Item]:
        self.ignored = Ignored()
        for found in nonempty(list_images(self._root, ignored=self.ignored), f"{self._root} contains no images"):
            yield found.item()

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        return {"image": read_image(self._root, item.key, item.n_bytes)}


class ClassFolderSource:
    """A folder with one folder of images per class; labels number the classes in the order of their names.

    As in torchvision's ImageFolder: images may be at any depth in their class folder, images next to the class folders
    are ignored, and a class without images is an error.

    Args:
        root: The folder with the class folders.
        classes: The names of all classes, if this folder is a split that may lack some of them.

    """

    kind = "classes"
    sequential = False
    fields = {"image": "image", "label": "int64"}  # noqa: RUF012 - Source has a Mapping, and it is never changed

    def __init__(self, root: str | Path, classes: Sequence[str] | None = None) -> None:
        self._root = os.fspath(root)
        self._found = tuple(folders(self._root))
        if not self._found:
            raise BadSource(f"{self._root} contains no folders; class folders are one folder per class")
        self.classes = self._found if classes is None else tuple(classes)
        self.ignored = Ignored()

    def items(self) -> Iterator[Item]:
        self.ignored = Ignored()
        for name in sorted(os.listdir(self._root), key=os.fsencode):  # noqa: PTH208 - only names are needed
            if not name.startswith(".") and not os.path.isdir(join(self._root, name)):  # noqa: PTH112
                self.ignored.add(name)
        labels = {name: label for label, name in enumerate(self.classes)}
        for name in self._found:
            problem = f"{join(self._root, name)} is a class folder without images; remove it"
            for found in nonempty(list_images(self._root, name, self.ignored), problem):
                yield found.item(labels[name])

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        return {"image": read_image(self._root, item.key, item.n_bytes), "label": item.locator[0]}
