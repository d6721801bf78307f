# SPDX-License-Identifier: Apache-2.0
"""A dataset as a source: to store its samples in other formats without the original files.

Keys are kept. Of several renditions of an image, which all have the same pixels, the first is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from headrace.errors import BadSource, CorruptImage
from headrace.sources._types import Encoded, Item

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from headrace.records import Dataset

MANIFEST = "dataset.json"


def is_dataset(path: str | PathLike[str]) -> bool:
    """Return whether a path is a finished dataset, or one with a version, as in `photos.hr@v3`."""
    if (Path(path) / MANIFEST).is_file():
        return True
    from headrace.records.versions import split_address, version_numbers  # noqa: PLC0415 - imports pyarrow

    folder, number = split_address(path)
    return (number is not None or (folder / "versions").is_dir()) and bool(version_numbers(folder))


def is_plain(source: object) -> TypeGuard[Dataset]:
    """Return whether it is an open dataset without transforms; one with transforms is an iterable of their results."""
    from headrace.records import Dataset  # noqa: PLC0415 - imports pyarrow, which other sources do not need

    return isinstance(source, Dataset) and source.transform is None


class DatasetSource:
    """The samples of a dataset, in its order."""

    kind = "dataset"
    sequential = False

    def __init__(self, dataset: Dataset | str | PathLike[str], *, split: str | None = None) -> None:
        from headrace.records import Dataset, open_dataset  # noqa: PLC0415

        if not isinstance(dataset, Dataset) and not is_dataset(dataset):
            raise BadSource(f"{dataset} is not a finished dataset: it has no {MANIFEST}")
        self._dataset = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
        if split is not None:
            try:
                self._dataset = self._dataset.split_named(split)
            except KeyError as error:
                raise BadSource(error.args[0]) from None
        fields = self._dataset.manifest.fields
        self._pixels = {field.name: field.type for field in fields if field.is_pixels}
        self._tensors = {field.name: field.tensor.n_bytes for field in fields if field.is_tensor}
        self.path, self.classes = self._dataset.path, self._dataset.classes
        self.keypoints = dict(self._dataset.keypoints)
        self.fields = {field.name: field.declared for field in fields}

    def items(self) -> Iterator[Item]:
        dataset = self._dataset
        sizes = sum((dataset.column(f"{name}.0.length").astype(np.int64) for name in self._pixels), np.int64(0))
        sizes = sizes + np.int64(sum(self._tensors.values()))
        upright = np.ones(len(dataset), np.uint8)
        turned = [
            dataset.column(f"{name}.orientation") if kind == "image" else upright for name, kind in self._pixels.items()
        ]
        content = int(dataset.fingerprint, 16)  # labels and other values have no checksums
        stamps = [dataset.column(f"{name}.0.checksum") for name in (*self._pixels, *self._tensors)]
        for index, n_bytes in enumerate(np.broadcast_to(sizes, len(dataset))):
            stamp = (hash(tuple(int(column[index]) for column in stamps)) + content) % 2**64
            yield Item(dataset.key(index), int(n_bytes), (index, *(int(column[index]) for column in turned)), stamp)

    def load(self, item: Item) -> dict[str, object]:
        index, *orientations = item.locator
        sample: dict[str, object] = {}
        turned = dict(zip(self._pixels, orientations, strict=True))
        for name, kind in self._dataset.fields.items():
            if name in turned:
                sample[name] = self._image(item.key, index, name, turned[name])
            elif name in self._tensors:
                sample[name] = self._dataset.tensor(index, name)
            else:
                value = self._dataset.value(index, name)
                sample[name] = (value.xyxy, value.labels) if kind == "boxes" else value
        return sample

    def _image(self, key: str, index: int, name: str, orientation: int) -> Encoded:
        from headrace.records.checksum import crc32c  # noqa: PLC0415

        data, rendition = self._dataset.read(index, name)
        where = f"{key}, at offset {rendition.offset} of {self.path / rendition.shard}"
        if crc32c(data) != rendition.checksum:  # damage must not be stored again with a valid checksum
            raise CorruptImage(f"{where}: the bytes do not have their checksum; build from the original files")
        return Encoded(data, rendition.format.partition(":")[0], where, orientation)
