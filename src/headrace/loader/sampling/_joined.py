# SPDX-License-Identifier: Apache-2.0
"""Several datasets as one: their samples one after the other, with the fields that they have in common.

The samples of all parts are numbered through, those of the complete datasets too, so that every sample has random draws
of its own. Shards are numbered through as well; the loader reads all of them with one engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from headrace.errors import HeadraceError
from headrace.records import Dataset
from headrace.records.index.gather import Gather, RowNumbers
from headrace.records.index.numbers import COPY_BITS
from headrace.records.keypoints import Keypoints
from headrace.records.manifest import IndexFile, Manifest
from headrace.records.schema import Field


class Joined(Dataset):
    """A sequence of the samples of all parts. For `headrace.Mixture`."""

    def __init__(
        self, parts: Sequence[Dataset], *, fields: Iterable[str] | None = None, same_classes: bool = True
    ) -> None:
        self._parts = tuple(parts)
        if not parts:
            raise ValueError("there must be at least one dataset")
        for part in self._parts:
            if part.objects is not None:
                raise ValueError(f"datasets in an object store cannot be joined yet; {part!r} is in one: copy it first")
        first = self._parts[0]
        self.location, self.storage_options = first.location, None
        self.seed, self.color, self.transform, self.max_pixels = first.seed, first.color, None, first.max_pixels
        self.box_filter, self.version = first.box_filter, first.version
        self._compiled, self._rows = None, None
        self._manifest = _joined_manifest(self._parts, fields, same_classes=same_classes)
        self._ends = np.cumsum([len(part) for part in self._parts])
        self._row_ends = np.cumsum([part.manifest.samples for part in self._parts])
        if self._row_ends[-1] > 1 << COPY_BITS:
            raise ValueError(f"the datasets must have at most 2**{COPY_BITS} samples in all; got {self._row_ends[-1]}")

    @property
    def parts(self) -> tuple[Dataset, ...]:
        return self._parts

    @property
    def lengths(self) -> list[int]:
        """The number of samples of each part."""
        return [len(part) for part in self._parts]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        part, at = self._locate(index)
        sample = part[at]
        return {name: sample[name] for name in self.fields} if isinstance(sample, dict) else sample

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several samples, as `Dataset.__getitems__`."""
        samples = []
        for index in indices:
            part, at = self._locate(index)
            (sample,) = part.__getitems__([at])
            samples.append({name: sample[name] for name in self.fields} if isinstance(sample, dict) else sample)
        return samples

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {kind}" for name, kind in self.fields.items())
        return f"<{type(self).__name__} of {len(self._parts)} datasets: {len(self)} samples of {fields}>"

    def _locate(self, index: int) -> tuple[Dataset, int]:
        position = int(index) + len(self) if index < 0 else int(index)
        if not 0 <= position < len(self):
            raise IndexError(f"index must be in [{-len(self)}, {len(self)}); got {index}")
        number = int(np.searchsorted(self._ends, position, side="right"))
        return self._parts[number], position - int(self._ends[number]) + len(self._parts[number])

    def part_of(self, rows: RowNumbers) -> RowNumbers:
        """Return the number of the part that each sample number belongs to."""
        return np.searchsorted(self._row_ends, rows & ((1 << COPY_BITS) - 1), side="right").astype(np.int64)

    def row_name(self, row: int) -> str:
        number = int(self.part_of(np.array([row]))[0])
        own = (row & ((1 << COPY_BITS) - 1)) - int(self._row_ends[number]) + self._parts[number].manifest.samples
        return f"{self._parts[number].path}: {self._parts[number].row_name(own)}"

    @property
    def path(self) -> Path:
        """The folder of the first part."""
        return self._parts[0].path

    @property
    def objects(self) -> None:
        """None: the parts are files."""

    def shard_location(self, shard: int) -> str:
        """Return the path of a shard of the part that it belongs to, for messages."""
        for part in self._parts:
            if shard < len(part.manifest.shards):
                return part.shard_location(shard)
            shard -= len(part.manifest.shards)
        return f"shard {shard} beyond those of all parts"

    @property
    def fields(self) -> Mapping[str, str]:
        return {field.name: field.type for field in self._manifest.fields}

    @property
    def formats(self) -> Mapping[str, Mapping[str, int]]:
        return self._manifest.formats

    @property
    def manifest(self) -> Manifest:
        """What the parts have in common, as if it were one dataset."""
        return self._manifest

    @property
    def classes(self) -> list[str] | None:
        return None if self._manifest.classes is None else list(self._manifest.classes)

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        return None if self.classes is None else {name: label for label, name in enumerate(self.classes)}

    @property
    def fingerprint(self) -> str:
        return "+".join(part.fingerprint for part in self._parts)

    @property
    def rows(self) -> npt.NDArray[np.int64] | None:
        return None

    @property
    def gather(self) -> Gather:
        return cast("Gather", JoinedGather(self._parts, self._manifest))

    def column(self, name: str) -> npt.NDArray[Any]:
        return np.concatenate([part.column(name) for part in self._parts])

    def value(self, index: int, field: str) -> Any:
        part, at = self._locate(index)
        return part.value(at, field)

    def key(self, index: int) -> str:
        part, at = self._locate(index)
        return part.key(at)

    @property
    def epoch(self) -> int:
        return self._parts[0].epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of all parts."""
        for part in self._parts:
            part.set_epoch(epoch)

    def _of_parts(self, *args: Any, **options: Any) -> NoReturn:
        del args, options
        raise TypeError("this works with a single dataset: use it on the datasets before they are joined")

    select = split = split_named = rendition = read = read_blocks = verify = _of_parts
    table = property(_of_parts)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class JoinedGather:
    """Reads columns of the parts at once, as `Gather` does of one dataset. Thread-safe."""

    def __init__(self, parts: Sequence[Dataset], manifest: Manifest) -> None:
        self._gathers = [part.gather for part in parts]
        self._ends = np.cumsum([len(part) for part in parts])
        samples = np.array([part.manifest.samples for part in parts])
        self._row_ends = np.cumsum(samples)
        self._starts, self._row_starts = self._ends - [len(part) for part in parts], self._row_ends - samples
        shards = np.array([len(part.manifest.shards) for part in parts])
        self._shard_starts = np.cumsum(shards) - shards
        self._renditions = [{field.name: field.renditions for field in part.manifest.fields} for part in parts]
        self._numbers = {field.name for field in manifest.fields if field.type in ("int64", "float32")}

    def rows(self, positions: npt.NDArray[Any]) -> RowNumbers:
        """Return the sample numbers at positions of all parts together; a position may have the bits of a copy."""
        chosen = np.asarray(positions, np.int64)
        plain = chosen & ((1 << COPY_BITS) - 1)
        if chosen.size and not 0 <= plain.min() <= plain.max() < self._ends[-1]:
            raise IndexError(f"positions must be in [0, {self._ends[-1]}); got {plain.min()} to {plain.max()}")
        rows = chosen - plain
        for part, here in _by_part(self._ends, plain):
            rows[here] += self._gathers[part].rows(plain[here] - self._starts[part]) + self._row_starts[part]
        return rows

    def pixel_columns(self, field: str, rendition: int, rows: RowNumbers) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a rendition. Where a part has fewer renditions, it is the first one again."""
        columns: dict[str, npt.NDArray[Any]] = {}
        for part, here, own in self._parted(rows):
            number = rendition if rendition < self._renditions[part][field] else 0
            for name, values in self._gathers[part].pixel_columns(field, number, own).items():
                column = columns.setdefault(name, np.zeros(len(rows), values.dtype))
                column[here] = values + values.dtype.type(self._shard_starts[part]) if name == "shard" else values
        return columns or self._gathers[0].pixel_columns(field, 0, rows)

    def values(self, field: str, rows: RowNumbers) -> npt.NDArray[Any] | list[Any]:
        """Return the values of a field: an array for `int64` and `float32`, a list for other types."""
        values: Any = [None] * len(rows)
        if field in self._numbers:
            values = np.zeros(len(rows), self._gathers[0].values(field, rows[:0]).dtype)  # type: ignore[union-attr]
        for part, here, own in self._parted(rows):
            found = self._gathers[part].values(field, own)
            if field in self._numbers:
                values[here] = found
            else:
                for at, value in zip(here.tolist(), found, strict=True):
                    values[at] = value
        return cast("npt.NDArray[Any] | list[Any]", values)

    def _parted(self, rows: RowNumbers) -> Iterable[tuple[int, RowNumbers, RowNumbers]]:
        """Yield (part, where its samples are, their rows in the part)."""
        plain = rows & ((1 << COPY_BITS) - 1)
        for part, here in _by_part(self._row_ends, plain):
            yield part, here, plain[here] - self._row_starts[part]


def _by_part(ends: RowNumbers, numbers: RowNumbers) -> Iterable[tuple[int, RowNumbers]]:
    parts = np.searchsorted(ends, numbers, side="right")
    for part in np.unique(parts).tolist():
        yield part, np.flatnonzero(parts == part)


def _joined_manifest(parts: Sequence[Dataset], names: Iterable[str] | None, *, same_classes: bool) -> Manifest:
    manifests = [part.manifest for part in parts]
    fields = _common_fields(parts, None if names is None else tuple(names))
    if same_classes:
        for part, manifest in zip(parts, manifests, strict=True):
            if manifest.classes != manifests[0].classes:
                raise ValueError(
                    f"all parts must have the same classes, because labels are numbers; {parts[0].path} has "
                    f"{_some(manifests[0].classes)}, {part.path} has {_some(manifest.classes)}: build them with the "
                    f"same classes, or set same_classes=False to keep the numbers"
                )
    formats: dict[str, dict[str, int]] = {}
    for manifest in manifests:
        for name in (field.name for field in fields if field.is_pixels):
            counts = formats.setdefault(name, {})
            for form, count in manifest.formats.get(name, {}).items():
                counts[form] = counts.get(form, 0) + count
    samples = sum(manifest.samples for manifest in manifests)
    shards = tuple(shard for manifest in manifests for shard in manifest.shards)
    index = IndexFile(n_bytes=0, batches=(samples,), checksums="")
    classes = manifests[0].classes if same_classes else None
    return Manifest(fields, index, shards, formats, classes=classes, keypoints=_common_keypoints(parts, fields))


def _common_keypoints(parts: Sequence[Dataset], fields: Sequence[Field]) -> dict[str, Keypoints]:
    """Return what keypoints are called, which must not differ: flips exchange left and right ones by it."""
    names = [field.name for field in fields]
    first = {name: each for name, each in parts[0].keypoints.items() if name in names}
    for part in parts[1:]:
        if {name: each for name, each in part.keypoints.items() if name in names} != first:
            raise ValueError(
                f"all parts must have the same names and connections of keypoints; those of {part.path} and "
                f"{parts[0].path} differ: build them alike, or choose other fields with fields=[…]"
            )
    return first


def _some(classes: tuple[str, ...] | None) -> str:
    if classes is None:
        return "none"
    return f"{len(classes)} ({', '.join(classes[:3])}{', …' if len(classes) > 3 else ''})"


def _common_fields(parts: Sequence[Dataset], names: tuple[str, ...] | None) -> tuple[Field, ...]:
    own = [{field.name: field for field in part.manifest.fields} for part in parts]
    chosen = tuple(own[0]) if names is None else names
    fields = []
    for name in chosen:
        lacking = next((part for part, fields in zip(parts, own, strict=True) if name not in fields), None)
        if lacking is not None:
            if names is None:
                continue
            raise ValueError(f"all parts must have the fields; {lacking.path} has no field {name!r}")
        kinds = [fields[name].declared for fields in own]
        if len(set(kinds)) > 1:
            other = next(number for number, kind in enumerate(kinds) if kind != kinds[0])
            raise ValueError(
                f"field {name!r} must have one type in all parts; {parts[0].path} has {kinds[0]}, "
                f"{parts[other].path} has {kinds[other]}: choose other fields with fields=[…]"
            )
        most = max(fields[name].renditions for fields in own)
        fields.append(Field(name, own[0][name].type, most, own[0][name].of))
    kept = {field.name for field in fields}
    fields = [field for field in fields if not field.of or field.of in kept]
    if not fields:
        raise HeadraceError(f"the parts must have a field in common; {parts[0].path} has {', '.join(own[0])}")
    return tuple(fields)
