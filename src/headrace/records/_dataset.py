# SPDX-License-Identifier: Apache-2.0
"""`Dataset`, which `headrace.open` returns: a dataset as a sequence of samples."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import formats, transforms
from headrace.errors import CorruptDataset
from headrace.records import schema
from headrace.records._shared import EpochCounter
from headrace.records._verify import VerifyReport, verify
from headrace.records._views import Rows, named_rows, select_rows, split_rows
from headrace.records.index.arrays import from_numpy
from headrace.records.index.gather import Gather
from headrace.records.index.opened import DatasetFiles
from headrace.records.keypoints import Keypoints
from headrace.records.manifest import Manifest, shard_name
from headrace.records.rendition import Rendition
from headrace.records.sample import Place, SampleMaker, read_value, stored_tensor
from headrace.records.versions import FIRST, address
from headrace.storage import Objects, join_url
from headrace.tensors import StoredTensor
from headrace.transforms.boxes import BoxFilter
from headrace.transforms.mixing import Mixer

# Transforms without random draws.
_FIXED = (transforms.CenterCrop, transforms.Letterbox, transforms.Normalize, transforms.Pad, transforms.Resize)


class Dataset:
    """Samples on disk, indexed like a list: `ds[i]` reads, decodes and transforms one.

    Opening takes the same time for any number of samples. A pickle contains the path and options. Thread-safe, and
    usable in forked and spawned processes.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        transform: Any = None,
        seed: int = 0,
        color: Literal["auto", "RGB", "keep"] = "auto",
        max_pixels: int = formats.MAX_PIXELS,
        min_area: float = 1.0,
        min_visibility: float = 0.0,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if color not in ("auto", "RGB", "keep"):
            raise ValueError(f"color must be 'auto', 'RGB' or 'keep'; got {color!r}")
        self.location = os.fspath(path)
        """Where the dataset is: a folder or a URL, with the version if one was given, as in `photos.hr@v3`."""
        self.storage_options = storage_options
        self.seed = seed
        self.color = color
        self.transform = transform
        self.max_pixels = operator.index(max_pixels)
        self.box_filter = BoxFilter().replaced(min_area, min_visibility)
        self._compiled = self._compile()
        self._rows: Rows | None = None
        self._files = DatasetFiles(self.location, storage_options)
        self.version = self._files.manifest.number
        self._epochs = EpochCounter(self._files.manifest.samples)

    @property
    def path(self) -> Path:
        """The folder of the dataset, or of the local copy of its index."""
        return self._files.folder

    @property
    def objects(self) -> Objects | None:
        """The object store that has the shards; None if they are in a local folder."""
        return self._files.objects

    def shard_location(self, shard: int) -> str:
        """Return the path or URL of a shard, for messages."""
        return join_url(self.location if self.objects else str(self.path), shard_name(shard))

    def _compile(self) -> transforms.Compiled | None:
        if self.transform is None:
            return None
        compiled = transforms.compile(self.transform, color=self.color)
        if compiled.per_batch:
            raise ValueError("a dataset returns samples, not batches; use PerBatch with headrace.Loader")
        return compiled

    def __len__(self) -> int:
        return self._files.manifest.samples if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    @overload
    def __getitem__(self, index: int) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = self._row(index)
        return self._samples([row], [self._epochs.epoch_of(row, warn=self._is_random)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several samples; PyTorch's DataLoader reads a batch with one call.

        Until `set_epoch` is called, the first visit of a sample draws as in epoch 0, the second as in epoch 1 and so
        on, in whichever worker process. They are the batch for `MixUp` and its like, whose draws are those of the epoch
        of its first sample.
        """
        rows = [self._row(index) for index in indices]
        return self._samples(rows, [self._epochs.next_epoch_of(row) for row in rows])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {kind}" for name, kind in self.fields.items())
        name = self.location if self.version == FIRST else self.address
        return f"<Dataset {name!r}: {len(self)} samples of {fields}>"

    def _row(self, index: int) -> int:
        position = operator.index(index)
        if position < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(f"index must be in [{-len(self)}, {len(self)}); got {index}")
        return position if self._rows is None else int(self._rows.array[position])

    @cached_property
    def _is_random(self) -> bool:
        compiled = self._compiled
        return compiled is not None and not all(isinstance(each, _FIXED) for each in compiled.transforms)

    def _samples(self, rows: Sequence[int], epochs: Sequence[int]) -> list[Any]:
        samples = [self._maker.make(row, epoch) for row, epoch in zip(rows, epochs, strict=True)]
        if self._mixer is not None and samples:
            image, labels = self._mixer.image, self._mixer.labels
            images = [sample[image] for sample in samples]
            mixed, soft = self._mixer.mix(
                np.stack(images) if len({each.shape for each in images}) == 1 else images,
                np.array([sample[labels] for sample in samples]),
                seed=self.seed,
                epoch=epochs[0],
                sample=rows[0],
            )
            for at, sample in enumerate(samples):
                sample[image], sample[labels] = mixed[at], soft[at]
        for function in self._compiled.per_sample if self._compiled else ():
            samples = [function(sample) for sample in samples]
        return samples

    @cached_property
    def _mixer(self) -> Mixer | None:
        compiled = self._compiled
        if compiled is None or not compiled.mixes:
            return None
        return Mixer(compiled.mixes, self.fields, self.classes, layout=compiled.layout)

    @cached_property
    def _maker(self) -> SampleMaker:
        return SampleMaker(self, self._compiled)

    def row_name(self, row: int) -> str:
        """Return the name of a row of the complete dataset, or of a copy of it, for messages."""
        batch, at = self._files.index.locate(row)
        try:
            return f"sample {batch.key[at]!r} (row {row})"
        except ValueError:
            return f"sample in row {row}"

    @property
    def fields(self) -> Mapping[str, str]:
        return MappingProxyType({field.name: field.type for field in self._files.manifest.fields})

    @property
    def formats(self) -> Mapping[str, Mapping[str, int]]:
        """For each image field, the number of renditions in each format, in the complete dataset."""
        return MappingProxyType(dict(self._files.manifest.formats))

    @property
    def classes(self) -> list[str] | None:
        """The class names in the order of their labels."""
        classes = self._files.manifest.classes
        return None if classes is None else list(classes)

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        classes = self._files.manifest.classes
        return None if classes is None else {name: label for label, name in enumerate(classes)}

    @property
    def keypoints(self) -> Mapping[str, Keypoints]:
        """What the keypoints of fields are called and how they are connected, as far as the source knew it."""
        return MappingProxyType(dict(self.manifest.keypoints))

    @cached_property
    def flip_pairs(self) -> Mapping[str, tuple[tuple[int, int], ...]]:
        """For each field of keypoints with names: the left and right ones, which a mirrored image exchanges."""
        return {name: each.flip_pairs for name, each in self.manifest.keypoints.items()}

    @property
    def fingerprint(self) -> str:
        """Identifies the content of the dataset, wherever it is stored."""
        return self._files.fingerprint

    @property
    def address(self) -> str:
        """The path with the version, as in `photos.hr@v3`: opens this version whatever is added later."""
        return self.location if self.objects else address(self.path, self.version)

    @property
    def manifest(self) -> Manifest:
        """The parsed `dataset.json`, or file of a later version."""
        return self._files.manifest

    @property
    def parts(self) -> tuple[Dataset, ...]:
        return (self,)  # several if they are joined

    @property
    def table(self) -> pa.Table:
        """The index as an Arrow table: the mapped file itself, or a copy of the rows of a view."""
        table = self._files.index.table()
        if self._rows is None:
            return table
        return table.take(from_numpy(self._rows.array, pa.int64()))

    @property
    def targets(self) -> npt.NDArray[np.int64]:
        """The field `label` of all samples, as in torchvision's ImageFolder."""
        return self.column("label")

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column of numbers of the index, such as `label` or `image.0.width`, as an array."""
        column = self._files.index.column(name)
        return column if self._rows is None else column[self._rows.array]

    def value(self, index: int, field: str) -> Any:
        """Return the value of a field that is not an image or mask, without decoding anything."""
        return self._plain_value(self._row(index), field)

    def tensor(self, index: int, field: str) -> StoredTensor:
        """Return the stored bytes of a tensor and their type. `array()` of it is the tensor."""
        batch, at = self._files.index.locate(row := self._row(index))
        if field not in batch.tensors:
            raise KeyError(f"{field!r} must be a field of tensors; those are {', '.join(batch.tensors) or 'none'}")
        return stored_tensor(self, Place(row, batch, at), field)

    def _plain_value(self, row: int, field: str) -> Any:
        batch, at = self._files.index.locate(row)
        if field not in batch.values and field not in batch.tensors:
            raise KeyError(f"{field!r} must be a field of values; those are {', '.join(batch.values) or 'none'}")
        return read_value(self, Place(row, batch, at), field)

    @property
    def rows(self) -> npt.NDArray[np.int64] | None:
        """The rows of the complete dataset in this view, in order; None if this is not a view."""
        return None if self._rows is None else self._rows.array

    @property
    def gather(self) -> Gather:
        """Reads columns of many samples at once as arrays."""
        return Gather(self._files.places, self.rows, self._plain_value)

    def key(self, index: int) -> str:
        """Return the key of a sample: its path in the source, unless the source gives another."""
        row = self._row(index)
        batch, at = self._files.index.locate(row)
        try:
            return str(batch.key[at])
        except ValueError as error:
            raise CorruptDataset(f"{self.path}: row {row} of the index: the key must be UTF-8: {error}") from error

    def rendition(self, index: int, field: str, format: str | None = None) -> Rendition:  # noqa: A002
        """Return where an image is stored and what the index says about it, without reading it.

        `format` selects one of several renditions; the default is the first.
        """
        row = self._row(index)
        batch, at = self._files.index.locate(row)
        if field not in batch.renditions:
            raise KeyError(
                f"{field!r} must be an image or mask field; those are {', '.join(batch.renditions) or 'none'}"
            )
        wanted = None if format is None else schema.FORMAT_CODES[schema.stored_format(format)]
        for renditions in batch.renditions[field]:
            if wanted in (None, renditions.format[at]):
                return Rendition.at(renditions, at)
        found = ", ".join(schema.FORMAT_NAMES.get(r.format[at], "?") for r in batch.renditions[field])
        raise KeyError(f"{self.row_name(row)} has {field!r} as {found}, not as {format}")

    def read(self, index: int, field: str, format: str | None = None) -> tuple[memoryview, Rendition]:  # noqa: A002
        """Return the stored bytes of an image and its rendition. The caller must compare the checksum."""
        rendition = self.rendition(index, field, format)
        return self._files.shards.read(rendition.shard_number, rendition.offset, rendition.n_bytes), rendition

    def read_blocks(self, rendition: Rendition) -> Iterator[memoryview]:
        """Yield the stored bytes of an image in pieces. A piece is valid until the next one is read."""
        return self._files.shards.blocks(rendition.shard_number, rendition.offset, rendition.n_bytes)

    def select(self, indices: Any) -> Dataset:
        """Return a view of some samples, in the given order: integers, a slice, or an array of booleans."""
        return self._view(select_rows(indices, len(self)))

    @overload
    def split(self, fractions: Mapping[str, float], seed: int = 0) -> dict[str, Dataset]: ...
    @overload
    def split(self, fractions: Sequence[float], seed: int = 0) -> list[Dataset]: ...
    def split(self, fractions: Mapping[str, float] | Sequence[float], seed: int = 0) -> Any:
        """Split the samples at random into views: a dict for `{"train": 0.9, "val": 0.1}`, a list for `[0.9, 0.1]`.

        The same seed gives the same rows on every machine. Sizes are exact, and rows keep their order.
        """
        if isinstance(fractions, Mapping):
            shares = [*fractions.values()]
            return dict(zip(fractions, map(self._view, split_rows(len(self), shares, seed)), strict=True))
        return [self._view(rows) for rows in split_rows(len(self), fractions, seed)]

    def split_named(self, name: str) -> Dataset:
        """Return a view of the samples whose field `split` has this value, such as `"train"`.

        Sources that consist of splits have this field.
        """
        if self.fields.get("split") != "str":
            raise KeyError(
                f"{self.path} has no str field 'split'; its fields are {', '.join(self.fields) or 'none'}: "
                f"use ds.split({{'train': 0.9, 'val': 0.1}}), or build it from a source that has splits"
            )
        return self._view(named_rows(self.table.column("split"), name, str(self.path)))

    def _view(self, rows: npt.NDArray[np.int64]) -> Dataset:
        view = Dataset.__new__(type(self))
        chosen = Rows(rows if self._rows is None else self._rows.array[rows])
        view.__dict__.update(self.__dict__, _rows=chosen)
        view.__dict__.pop("_maker", None)  # the partners of a sample are those of its view
        return view

    @property
    def epoch(self) -> int:
        """The epoch that `set_epoch` has set, in any process that shares this dataset; 0 before."""
        return self._epochs.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of this dataset, its views and all their worker processes, including running ones.

        Random transforms then draw as in this epoch, however often a sample is visited. Otherwise a `DataLoader`
        counts epochs by itself (`__getitems__`), and `ds[i]` draws as in epoch 0.
        """
        self._epochs.set_epoch(operator.index(epoch))

    def __getstate__(self) -> dict[str, Any]:
        options = ("storage_options", "seed", "color", "transform", "max_pixels", "box_filter")
        kept = ("location", "version", *options, "_rows", "_epochs")
        return {**{name: self.__dict__[name] for name in kept}, "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        expected = state.pop("fingerprint")
        self.__dict__.update(state)
        self._compiled = self._compile()
        self._files = DatasetFiles(self.location, self.storage_options, self.version)
        if self.fingerprint != expected:
            raise CorruptDataset(f"{self.location} has been built again since it was opened; open it again")

    def verify(self, *, workers: int | None = None) -> VerifyReport:
        """Check every byte of the complete dataset, also if this is a view."""
        return verify(self.address, workers=workers)


def open_dataset(
    path: str | PathLike[str],
    *,
    transform: Any = None,
    seed: int = 0,
    color: Literal["auto", "RGB", "keep"] = "auto",
    max_pixels: int = formats.MAX_PIXELS,
    min_area: float = 1.0,
    min_visibility: float = 0.0,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open a dataset. Time and memory do not depend on the number of samples.

    Args:
        path: The folder that `headrace build` made: its newest version, or `photos.hr@v3` for version 3; or its URL in
            an object store: `s3://bucket/photos.hr`, `gs://`, `az://`, `http://`, `https://` or
            `hf://datasets/OWNER/NAME/photos.hr`.
        transform: One or a list of declarative transforms (`headrace.transforms`), then functions that are called with
            each sample, a dict of its fields. With declarative transforms images are `[C, H, W]`, as in a loader;
            otherwise `[H, W]` or `[H, W, C]`, as decoded.
        seed: Seed of random transforms, whose draws depend only on the seed, the epoch (`set_epoch`) and the row.
        color: `"auto"` converts gray, RGB, RGBA and CMYK images to three channels and keeps all others as stored;
            `"RGB"` converts every image; `"keep"` keeps all as stored. Masks are never converted.
        max_pixels: Raise if more pixels than this would be decoded for one image. For formats that can decode a
            region, only the region counts.
        min_area: Transforms remove boxes of which less than this many pixels remain.
        min_visibility: Transforms remove boxes of which a smaller share than this remains, 0 to 1.
        storage_options: Options of the object store, such as `{"endpoint": …, "region": …}`, and credentials that are
            not in the environment. They are never shown or stored.

    """
    return Dataset(
        path,
        transform=transform,
        seed=seed,
        color=color,
        max_pixels=max_pixels,
        min_area=min_area,
        min_visibility=min_visibility,
        storage_options=storage_options,
    )
