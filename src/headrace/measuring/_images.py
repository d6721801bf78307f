# SPDX-License-Identifier: Apache-2.0
"""Some images of a source or dataset: where their bytes are stored, and the bytes themselves, held in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import formats
from headrace.errors import BadSource, HeadraceError
from headrace.measuring._cold import read_part
from headrace.measuring._sampling import image_fields, spread_by_size
from headrace.records import Dataset
from headrace.records.manifest import shard_name
from headrace.sources import Encoded, Item, Source

Positions: TypeAlias = npt.NDArray[np.int64]

MAX_IMAGES = 256
MAX_BYTES = 128 << 20
"""Bytes that a sample may take in memory."""

FILE_KINDS = ("folder", "classes")
"""Kinds of sources whose samples are separate files, which can be opened, read and evicted one by one."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """The bytes of one stored image."""

    path: str
    offset: int
    n_bytes: int

    def read(self) -> bytes:
        """Open the file and read the image, through the page cache."""
        with Path(self.path).open("rb", buffering=0) as file:
            return read_part(file.fileno(), self.offset, self.n_bytes)


@dataclass(frozen=True, slots=True)
class ImageSample:
    """Some images of a source, of all sizes in proportion. They were just read, so they are in the page cache."""

    extents: tuple[FileRange, ...]  # where they are stored; empty if they are not separate parts of files
    image_bytes: float  # mean size of an encoded image
    formats: dict[str, float]  # each format's share of the images; `other` for those that only Pillow reads
    pixel_bytes: float | None
    """Mean size of a decoded image, from the headers; None if only Pillow can read one of them."""

    @classmethod
    def of(cls, contents: Sequence[bytes], extents: Sequence[FileRange]) -> ImageSample:
        """Describe encoded images."""
        names, count = [formats.sniff(content) for content in contents], len(contents)
        counts = Counter(name or "other" for name in names)
        sizes: list[int] = []
        for name, content in zip(names, contents, strict=True):
            if name is not None:
                shape = formats.get(name).probe(content)
                sizes.append(shape.height * shape.width * shape.channels * np.dtype(shape.dtype).itemsize)
        return cls(
            tuple(extents),
            sum(map(len, contents)) / count,
            {name: number / count for name, number in counts.most_common()},
            sum(sizes) / count if len(sizes) == count else None,
        )


def sample_source(source: Source, root: str, items: Sequence[Item]) -> tuple[ImageSample, list[Item]]:
    """Load some of the items of the source at `root`, and return them too; damaged ones are skipped."""
    contents, extents, loaded = [], [], []
    damage = ""
    chosen = _choose([item.n_bytes for item in items], root)
    for item in (items[number] for number in chosen):
        image = encoded_image(source, item)
        try:
            if image.format is not None:
                formats.get(image.format).probe(image.data)
        except HeadraceError as error:
            damage = f"{item.key}: {error}"
            continue
        loaded.append(item)
        contents.append(bytes(image.data))
        if source.kind in FILE_KINDS:
            extents.append(FileRange(f"{root}/{item.key}", 0, len(image.data)))
    if not contents:
        raise BadSource(f"{root} must have images that can be decoded; none of {len(chosen)} can, such as {damage}")
    return ImageSample.of(contents, extents), loaded


def encoded_image(source: Source, item: Item) -> Encoded:
    """Return the first image of a sample as the source has it."""
    value = source.load(item)[image_fields(source)[0]]
    if not isinstance(value, Encoded):
        raise BadSource(f"{item.key} must be an encoded image; got an array. Build a dataset from it and profile that")
    return value


def sample_dataset(dataset: Dataset) -> tuple[ImageSample, Positions]:
    """Load some images of a dataset; also return the positions of their samples."""
    sizes = dataset.column(f"{_pixel_fields(dataset)[0]}.0.length")
    positions = np.array(_choose(sizes, str(dataset.path)), np.int64)
    extents = file_ranges(dataset, positions)
    return ImageSample.of([extent.read() for extent in extents], extents), positions


def stored_bytes(dataset: Dataset) -> int:
    """Return the size of all images and masks of a dataset or view, counting the first rendition of each."""
    lengths = (dataset.column(f"{name}.0.length") for name in _pixel_fields(dataset))
    return sum(int(column.sum(dtype=np.int64)) for column in lengths)


def file_ranges(dataset: Dataset, positions: Positions) -> list[FileRange]:
    """Return where the images of these samples are stored, in the first image field and rendition."""
    gather = dataset.gather
    places = gather.pixel_columns(_pixel_fields(dataset)[0], 0, gather.rows(positions))
    columns = (places[part].tolist() for part in ("shard", "offset", "length"))
    return [
        FileRange(str(dataset.path / shard_name(shard)), offset, length)
        for shard, offset, length in zip(*columns, strict=True)
    ]


def _pixel_fields(dataset: Dataset) -> list[str]:
    """Return the names of the image fields, then of the mask fields."""
    found = [name for wanted in ("image", "mask") for name, kind in dataset.fields.items() if kind == wanted]
    if not found:
        raise BadSource(f"{dataset.path} must have an image field; its fields are {', '.join(dataset.fields)}")
    return found


def _choose(sizes: Sequence[int] | npt.NDArray[Any], name: str) -> list[int]:
    """Return positions of images of all sizes, as many as may be held in memory, in ascending order."""
    if len(sizes) == 0:
        raise BadSource(f"{name} must have samples to measure; it has none")
    mean = max(1.0, float(np.mean(sizes)))
    return sorted(spread_by_size(sizes, min(MAX_IMAGES, max(1, int(MAX_BYTES / mean)))))
