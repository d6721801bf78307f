# SPDX-License-Identifier: Apache-2.0
"""A folder of images, at any depth; and class folders, one folder a class, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.errors import BadSource
from headrace.sources._paths import folders, join, read_file, walk
from headrace.sources._types import Encoded, Item, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FolderSource:
    """Every image under a folder, ascending by the bytes of its path."""

    kind = "folder"
    sequential = False
    fields = {"image": "image"}  # noqa: RUF012 - Source wants a Mapping, and nobody writes to it
    classes = None

    def __init__(self, root: str | Path) -> None:
        self._root = os.fspath(root)

    def items(self) -> Iterator[Item]:
        empty = True
        for path, n_bytes in walk(self._root):
            empty = False
            yield Item(path, n_bytes, ())
        if empty:
            raise BadSource(f"{self._root} holds no images")

    def load(self, item: Item) -> dict[str, object]:
        return {"image": _read(self._root, item)}


class ClassFolderSource:
    """A folder with one folder of images for each class; labels count the classes in the order of their names.

    As torchvision's ImageFolder has it: images may lie at any depth under their class, those beside the class folders
    do not count, and a class without images is an error.
    """

    kind = "classes"
    sequential = False
    fields = {"image": "image", "label": "int64"}  # noqa: RUF012 - Source wants a Mapping, and nobody writes to it

    def __init__(self, root: str | Path) -> None:
        self._root = os.fspath(root)
        self._classes = tuple(folders(self._root))
        if not self._classes:
            raise BadSource(f"{self._root} holds no folders, and class folders are one folder a class")

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def items(self) -> Iterator[Item]:
        for label, name in enumerate(self._classes):
            empty = True
            for path, n_bytes in walk(self._root, name):
                empty = False
                yield Item(path, n_bytes, (label,))
            if empty:
                raise BadSource(f"{join(self._root, name)} is a class without images; remove the folder")

    def load(self, item: Item) -> dict[str, object]:
        return {"image": _read(self._root, item), "label": item.locator[0]}


def _read(root: str, item: Item) -> Encoded:
    path = join(root, item.key)
    return encoded(read_file(path, item.n_bytes), path)
