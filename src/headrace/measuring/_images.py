# SPDX-License-Identifier: Apache-2.0
"""A sample of the user's images: where their bytes lie, and the bytes themselves, in memory for the later stages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import formats
from headrace.errors import BadSource, HeadraceError
from headrace.measuring._cold import read_file
from headrace.records import Dataset
from headrace.records.manifest import shard_name
from headrace.sources import Encoded, Item, Source

Positions: TypeAlias = npt.NDArray[np.int64]

MOST_IMAGES = 256
MOST_BYTES = 128 << 20
"""That are held in memory; a few images of gigapixels are as good a sample."""

# Sources whose samples are files of their own, which can be opened, read and dropped from memory one by one.
FILE_KINDS = ("folder", "classes")


@dataclass(frozen=True, slots=True)
class FileRange:
    """The bytes of one stored image."""

    path: str
    offset: int
    n_bytes: int

    def read(self) -> bytes:
        return read_file(self.path, self.offset, self.n_bytes)


@dataclass(frozen=True, kw_only=True)
class ImageSample:
    """Some images of a source, and what is known of the whole."""

    extents: tuple[FileRange, ...]
    """Empty where the source has no bytes of its own for each image."""
    contents: tuple[bytes, ...]
    total: int | None
    """ImageSample of the whole source; None where listing it all would have taken too long."""
    total_bytes: int | None
    per_sample: float = 1.0
    """ImageSample that a sample has; a sample with a mask has two."""

    def __len__(self) -> int:
        return len(self.contents)

    @cached_property
    def image_bytes(self) -> float:
        return sum(map(len, self.contents)) / len(self.contents)

    @cached_property
    def formats(self) -> dict[str, float]:
        """Format and its share of the sample; `other` for what only Pillow reads."""
        counts = Counter(formats.sniff(content) or "other" for content in self.contents)
        return {name: count / len(self.contents) for name, count in counts.most_common()}

    @cached_property
    def pixel_bytes(self) -> float | None:
        """Mean size of a decoded image, from the heads alone; None where Pillow would have to be asked."""
        sizes = []
        for content in self.contents:
            name = formats.sniff(content)
            if name is None:
                return None
            shape = formats.get(name).probe(content)
            sizes.append(shape.height * shape.width * shape.channels * np.dtype(shape.dtype).itemsize)
        return sum(sizes) / len(sizes)


def list_items(source: Source, seconds: float) -> tuple[list[Item], bool]:
    """List a source's samples for about so long; and whether these are all."""
    end = time.perf_counter() + seconds
    found: list[Item] = []
    for item in source.items():
        if item.problem is None:
            found.append(item)
        if len(found) % 1024 == 0 and time.perf_counter() > end:
            return found, False
    return found, True


def from_source(source: Source, root: str, items: Sequence[Item], *, complete: bool, seed: int = 0) -> ImageSample:
    """Take a sample of a source's images."""
    field = next((name for name, kind in source.fields.items() if kind == "image"), None)
    if field is None:
        raise BadSource(f"{root} has no images: its fields are {', '.join(source.fields)}")
    chosen = _choose(len(items), int(sum(item.n_bytes for item in items) / max(1, len(items))), seed)
    contents, extents = [], []
    damage = ""
    for number in chosen:
        item = items[number]
        image = source.load(item)[field]
        if not isinstance(image, Encoded):
            raise BadSource(f"{item.key} of {root} is an array and no file: build a dataset of it and profile that")
        try:
            _check_head(image)
        except HeadraceError as error:
            damage = f"{item.key}: {error}"
            continue
        contents.append(bytes(image.data))
        if source.kind in FILE_KINDS:
            extents.append(FileRange(f"{root}/{item.key}", 0, len(image.data)))
    if not contents:
        raise BadSource(f"none of {len(chosen)} files of {root} is an image that can be read, such as {damage}")
    return ImageSample(
        extents=tuple(extents),
        contents=tuple(contents),
        total=len(items) if complete else None,
        total_bytes=sum(item.n_bytes for item in items) if complete else None,
    )


def encoded_image(source: Source, item: Item) -> Encoded:
    """The first image of a sample, as the source has it."""
    sample = source.load(item)
    for name, kind in source.fields.items():
        value = sample[name]
        if kind == "image" and isinstance(value, Encoded):
            return value
    raise BadSource(f"{item.key} has no image of its own bytes: build a dataset of it and profile that")


def some_of(items: Sequence[Item], most: int) -> Sequence[Item]:
    """Draw items at random, in their order; all if there are no more."""
    if len(items) <= most:
        return items
    chosen = np.random.default_rng(0).choice(len(items), most, replace=False)
    return [items[number] for number in sorted(chosen.tolist())]


def _check_head(image: Encoded) -> None:
    """Raise what is wrong with the head of a file; what only Pillow reads is taken on trust."""
    if image.format is not None:
        formats.get(image.format).probe(image.data)


def from_dataset(dataset: Dataset, *, seed: int = 0) -> tuple[ImageSample, Positions]:
    """Take a sample of a dataset's images, and say which of its samples they belong to."""
    total = stored_bytes(dataset)
    positions = np.array(_choose(len(dataset), total // max(1, len(dataset)), seed), np.int64)
    extents = file_ranges(dataset, positions)
    per_sample = len(_pixel_fields(dataset))
    images = ImageSample(
        extents=tuple(extents),
        contents=tuple(extent.read() for extent in extents),
        total=len(dataset) * per_sample,
        total_bytes=total,
        per_sample=per_sample,
    )
    return images, positions


def stored_bytes(dataset: Dataset) -> int:
    """Of all images and masks of a dataset, or of a view of one; the first rendition of each."""
    lengths = (dataset.column(f"{name}.0.length") for name in _pixel_fields(dataset))
    return sum(int(column.sum(dtype=np.int64)) for column in lengths)


def file_ranges(dataset: Dataset, positions: Positions) -> list[FileRange]:
    """Where the images of these samples lie, in the first field and rendition; nothing of them is read."""
    gather = dataset.gather
    places = gather.pixel_columns(_pixel_fields(dataset)[0], 0, gather.rows(positions))
    columns = (places[part].tolist() for part in ("shard", "offset", "length"))
    return [
        FileRange(str(dataset.path / shard_name(shard)), offset, length)
        for shard, offset, length in zip(*columns, strict=True)
    ]


def _pixel_fields(dataset: Dataset) -> list[str]:
    """The fields that hold images, and then those that hold masks."""
    found = [name for wanted in ("image", "mask") for name, kind in dataset.fields.items() if kind == wanted]
    if not found:
        raise BadSource(f"{dataset.path} has no images: its fields are {', '.join(dataset.fields)}")
    return found


def _choose(total: int, mean_bytes: int, seed: int) -> list[int]:
    """Give the numbers of some samples, drawn at random, in order."""
    if total < 1:
        raise BadSource("there is nothing to profile: no samples")
    wanted = min(total, MOST_IMAGES, max(1, MOST_BYTES // max(1, mean_bytes)))
    return sorted(np.random.default_rng(seed).choice(total, wanted, replace=False).tolist())
