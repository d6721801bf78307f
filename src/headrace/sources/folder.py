# SPDX-License-Identifier: Apache-2.0
"""A folder of images, at any depth; and class folders, one folder a class, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.errors import BadSource
from headrace.sources._paths import folders, join, read_file, walk
from headrace.sources._types import Encoded, Ignored, Item, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class FolderSource:
    """Every image under a folder, ascending by the bytes of its path."""

    kind = "folder"
    sequential = False
    fields = {"image": "image"}  # noqa: RUF012 - Source wants a Mapping, and nobody writes to it
    classes = None

    def __init__(self, root: str | Path) -> None:
        self._root = os.fspath(root)
        self.ignored = Ignored()

    def items(self) -> Iterator[Item]:
        self.ignored = Ignored()
        empty = True
        for found in walk(self._root, ignored=self.ignored):
            empty = False
            yield found.item()
        if empty:
            raise BadSource(f"{self._root} holds no images")

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        return {"image": _read(self._root, item)}


class ClassFolderSource:
    """A folder with one folder of images for each class; labels count the classes in the order of their names.

    As torchvision's ImageFolder has it: images may lie at any depth under their class, those beside the class folders
    do not count, and a class without images is an error.

    Args:
        root: The folder that holds the class folders.
        classes: The names of the classes, if this folder may lack some of them: one of several splits.

    """

    kind = "classes"
    sequential = False
    fields = {"image": "image", "label": "int64"}  # noqa: RUF012 - Source wants a Mapping, and nobody writes to it

    def __init__(self, root: str | Path, classes: Sequence[str] | None = None) -> None:
        self._root = os.fspath(root)
        self._found = tuple(folders(self._root))
        if not self._found:
            raise BadSource(f"{self._root} holds no folders, and class folders are one folder a class")
        self._classes = self._found if classes is None else tuple(classes)
        self.ignored = Ignored()

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def items(self) -> Iterator[Item]:
        self.ignored = Ignored()
        for name in sorted(os.listdir(self._root), key=os.fsencode):  # noqa: PTH208 - text, as above
            if not name.startswith(".") and not os.path.isdir(join(self._root, name)):  # noqa: PTH112
                self.ignored.add(name)
        labels = {name: label for label, name in enumerate(self._classes)}
        for name in self._found:
            empty = True
            for found in walk(self._root, name, self.ignored):
                empty = False
                yield found.item(labels[name])
            if empty:
                raise BadSource(f"{join(self._root, name)} is a class without images; remove the folder")

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        return {"image": _read(self._root, item), "label": item.locator[0]}


def _read(root: str, item: Item) -> Encoded:
    path = join(root, item.key)
    return encoded(read_file(path, item.n_bytes), path)
