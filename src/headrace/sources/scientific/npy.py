# SPDX-License-Identifier: Apache-2.0
"""A folder of `.npy` files as tensors, at any depth; with one folder per class they also have labels.

All files must have the dtype and shape of the first one. Arrays that are images (uint8, uint16 or int16, `[H, W]` or
`[H, W, C]`) are read as images by the sources `folder` and `classes`, which are detected for them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.errors import BadSource, HeadraceError
from headrace.formats.optional import read_npy
from headrace.sources._paths import folders, has_images, join, list_images, read_range
from headrace.sources._types import Ignored, field_name
from headrace.sources.folder import ClassFolderSource, FolderSource
from headrace.tensors import TensorType, tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from headrace.sources._types import Item

SUFFIX = ".npy"
_PIXELS = ("uint8", "uint16", "int16")
_MAX_CHANNELS = 64


class NpySource:
    """The arrays of `.npy` files as a field of tensors.

    Args:
        root: The folder.
        name: The name of the field.

    """

    kind = "npy"
    sequential = False

    def __init__(self, root: str | Path, name: str = "tensor") -> None:
        self._root = os.fspath(root)
        if field_name(name) != name:
            raise BadSource(f"a field name must have no dots and no leading underscore, and not be 'key'; got {name!r}")
        self._name = name
        has_classes = len([folder for folder in folders(self._root) if has_images(self._root, folder)]) > 1
        files = has_classes and not any(entry.endswith(SUFFIX) for entry in os.listdir(self._root))  # noqa: PTH208
        self._files = ClassFolderSource(self._root) if files else FolderSource(self._root)
        self.classes = self._files.classes
        first = next((found for found in list_images(self._root) if found.path.endswith(SUFFIX)), None)
        if first is None:
            raise BadSource(f"{self._root} contains no {SUFFIX} files")
        self._type = tensor_of(_read(join(self._root, first.path), first.n_bytes))[0]
        labels = {} if self.classes is None else {"label": "int64"}
        self.fields = {name: str(self._type), **labels}
        self.ignored = Ignored()

    def items(self) -> Iterator[Item]:
        self.ignored = Ignored()
        for item in self._files.items():
            if item.key.endswith(SUFFIX):
                yield item
            else:
                self.ignored.add(item.key)
        self.ignored = Ignored.union((self.ignored, self._files.ignored))

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        sample: dict[str, object] = {self._name: _read(join(self._root, item.key), item.n_bytes)}
        return sample if self.classes is None else {**sample, "label": item.locator[0]}


def _read(path: str, n_bytes: int) -> npt.NDArray[np.generic]:
    contents = read_range(path, 0, n_bytes + 1)
    if len(contents) != n_bytes:
        raise BadSource(f"{path} had {n_bytes} bytes when it was listed and has changed since; list the source again")
    try:
        return read_npy(contents)
    except HeadraceError as error:
        raise BadSource(f"{path}: {error}") from error


def holds_tensors(root: str | Path) -> bool:
    """Return whether the first image file under a folder is an `.npy` file that is not an image."""
    first = next(list_images(os.fspath(root)), None)
    if first is None or not first.path.endswith(SUFFIX) or first.problem is not None:
        return False
    try:
        found: TensorType = tensor_of(_read(join(os.fspath(root), first.path), first.n_bytes))[0]
    except (HeadraceError, ValueError):
        return False  # the source reports it
    is_image = found.dtype in _PIXELS and len(found.shape) in (2, 3) and found.shape[2:] <= (_MAX_CHANNELS,)
    return not is_image
