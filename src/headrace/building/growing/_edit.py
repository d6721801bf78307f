# SPDX-License-Identifier: Apache-2.0
"""`headrace.drop` and `headrace.relabel`: new versions without some samples, or with other values of a field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.building._assemble import writer_name
from headrace.building.growing._destination import GrowingDestination, growing_folder
from headrace.building.growing._publish import VersionReport, finish_version
from headrace.building.growing._source import MAX_NAMED, find_keys
from headrace.errors import BuildError
from headrace.records import Dataset
from headrace.records.index.arrays import make_array
from headrace.records.index.changes import change_columns, change_schema
from headrace.records.index.reading import Index
from headrace.records.index.writing import write_table_file
from headrace.records.manifest import RELABELED_TYPES, IndexFile, Manifest
from headrace.records.schema import Field
from headrace.records.versions import CHANGES, address, change_name

Ints = npt.NDArray[np.int64]
LABEL = "label"


def drop(dataset: str | PathLike[str] | Dataset, which: Any) -> VersionReport:
    """Make a version of a dataset without some samples. Earlier versions still have them.

    The samples stay in the shards: `headrace.merge` of one dataset writes a copy without them.

    Args:
        dataset: The dataset. Its newest version is changed.
        which: A key or several; or what `Dataset.select` takes: numbers of samples of the newest version, a slice or
            an array of booleans; or a view of the newest version, as `ds.select(...)` returns.

    Raises:
        BuildError: A key does not exist, or no samples would be left.

    """
    folder = growing_folder(_path(dataset))
    with GrowingDestination(folder, None) as place:
        base, index = place.base, Index(place.folder, place.base)
        samples = _select(place, index, which)
        if len(samples) == base.samples:
            raise BuildError(f"all {len(samples)} samples of {folder} would be dropped; remove the dataset instead")
        rows = index.stored_rows(samples)
        dropped = rows if index.dropped is None else np.union1d(index.dropped.rows, rows)
        file = _write(place, None, dropped, None)
        ends = np.cumsum([shard.samples for shard in base.shards])
        counts = np.bincount(ends.searchsorted(dropped, side="right"), minlength=len(base.shards)).tolist()
        manifest = replace(
            base,
            number=place.number,
            dropped=file,
            shards=tuple(replace(shard, dropped=n) for shard, n in zip(base.shards, counts, strict=True)),
            writer=writer_name(),
            change={"action": "drop", "samples": len(samples)},
        )
        return finish_version(place, manifest, file.n_bytes)


def relabel(
    dataset: str | PathLike[str] | Dataset,
    which: Any,
    to: Any = None,
    *,
    field: str = LABEL,
    new_classes: bool = False,
) -> VersionReport:
    """Make a version of a dataset in which some samples have other values of a field. Earlier versions keep theirs.

    Args:
        dataset: The dataset. Its newest version is changed.
        which: The samples, as in `drop`; or a dict of keys and values.
        to: The value of all these samples, or a list with one value for each. A label may be the name of its class.
        field: The field, of type `int64`, `float32` or `str`.
        new_classes: Append names that are not among the classes; otherwise they are an error.

    Raises:
        BuildError: A key does not exist, or a value does not fit the field.

    """
    folder = growing_folder(_path(dataset))
    if isinstance(which, Mapping):
        which, to = list(which), list(which.values())
    with GrowingDestination(folder, None) as place:
        base, index = place.base, Index(place.folder, place.base)
        described = _relabeled_field(base, field)
        samples, values = _with_values(place, index, which, to)
        classes, stored = _convert(base, described, values, new_classes=new_classes)
        rows = index.stored_rows(samples).tolist()
        earlier = index.changed.get(field)
        merged = {} if earlier is None else dict(zip(earlier.rows.tolist(), earlier.values, strict=True))
        merged.update(zip(rows, stored, strict=True))
        ordered = sorted(merged)
        file = _write(place, described, np.array(ordered, np.int64), [merged[row] for row in ordered])
        manifest = replace(
            base,
            number=place.number,
            classes=classes,
            relabeled={**base.relabeled, field: file},
            writer=writer_name(),
            change={"action": "relabel", "samples": len(rows), "field": field},
        )
        return finish_version(place, manifest, file.n_bytes)


def _path(dataset: Any) -> Any:
    return dataset.path if isinstance(dataset, Dataset) else dataset


def _write(place: GrowingDestination, field: Field | None, rows: Ints, values: Sequence[Any] | None) -> IndexFile:
    """Write the change file of the new version."""
    schema = change_schema(field)
    columns: list[Any] = [rows] if values is None else [rows, values]
    arrays = [
        make_array(kind, column, schema.field(number).type)
        for number, ((_, kind), column) in enumerate(zip(change_columns(field), columns, strict=True))
    ]
    (place.folder / CHANGES).mkdir(exist_ok=True)
    with place.atomic_path(change_name(place.number)) as path:
        file = write_table_file(path, schema, [pa.Table.from_arrays(arrays, schema=schema)])
    return replace(file, number=place.number)


def _keys(which: Any) -> list[str] | None:
    """Return the keys that `which` consists of; None if it does not consist of keys."""
    if isinstance(which, str):
        return [which]
    if isinstance(which, Iterable) and not isinstance(which, np.ndarray | Dataset):
        listed = list(which)
        return listed if listed and all(isinstance(each, str) for each in listed) else None
    return None


def _select(place: GrowingDestination, index: Index, which: Any) -> Ints:
    """Return the numbers of the selected samples, ascending."""
    keys = _keys(which)
    if keys is not None:
        return np.unique([sample for _, sample in _found(index, keys)])
    chosen = _numbers(place, which)
    if not len(chosen):
        raise ValueError("at least one sample must be selected; got none")
    return np.unique(chosen)


def _numbers(place: GrowingDestination, which: Any) -> Ints:
    """Return the numbers of the samples of a view, or of what `Dataset.select` takes, in its order."""
    if isinstance(which, Dataset):
        if which.fingerprint != place.base.fingerprint or which.rows is None:
            raise BuildError(
                f"the samples must be a view (ds.select) of the newest version, {place.base.number}; got {which!r}: "
                f"open the dataset again"
            )
        return np.asarray(which.rows)
    rows = Dataset(address(place.folder, place.base.number)).select(which).rows
    assert rows is not None
    return np.asarray(rows)


def _found(index: Index, keys: Sequence[str]) -> list[tuple[str, int]]:
    found = list(find_keys(index, keys))
    missing = sorted(set(keys) - {key for key, _ in found})
    if missing:
        some = ", ".join(map(repr, missing[:MAX_NAMED])) + (", …" if len(missing) > MAX_NAMED else "")
        raise BuildError(f"{len(missing)} of {len(set(keys))} keys are not in the dataset: {some}; nothing was changed")
    return found


def _with_values(place: GrowingDestination, index: Index, which: Any, to: Any) -> tuple[Ints, list[Any]]:
    """Return the selected samples and the value of each."""
    keys = _keys(which)
    is_list = isinstance(to, Sequence | np.ndarray) and not isinstance(to, str | bytes)
    if not is_list:
        samples = _select(place, index, which)
        return samples, [to] * len(samples)
    listed = list(to)
    if keys is not None:
        if len(listed) != len(keys):
            raise ValueError(f"to must have one value for each of the {len(keys)} keys; got {len(listed)}")
        values = dict(zip(keys, listed, strict=True))
        pairs = {sample: values[key] for key, sample in _found(index, keys)}
        return np.array(sorted(pairs), np.int64), [pairs[sample] for sample in sorted(pairs)]
    chosen = _numbers(place, which)
    if len(listed) != len(chosen) or len(set(chosen.tolist())) != len(chosen):
        raise ValueError(f"to must have one value for each of {len(chosen)} different samples; got {len(listed)}")
    order = np.argsort(chosen)
    return _select(place, index, which), [listed[at] for at in order]


def _relabeled_field(base: Manifest, name: str) -> Field:
    found = next((field for field in base.fields if field.name == name), None)
    if found is None or found.type not in RELABELED_TYPES:
        names = [field.name for field in base.fields if field.type in RELABELED_TYPES]
        raise BuildError(
            f"the field must be one of the types {', '.join(RELABELED_TYPES)}; those of the dataset are "
            f"{', '.join(names) or 'none'}; got {name!r}"
        )
    return found


def _convert(
    base: Manifest, field: Field, values: Sequence[Any], *, new_classes: bool
) -> tuple[tuple[str, ...] | None, list[Any]]:
    """Return the classes of the new version, and the values as they are stored."""
    classes = list(base.classes) if base.classes is not None and field.name == LABEL else None
    stored = [_stored(field, value, classes, new_classes=new_classes) for value in values]
    return (base.classes if classes is None else tuple(classes)), stored


def _stored(field: Field, value: Any, classes: list[str] | None, *, new_classes: bool) -> Any:
    wrong = ValueError(f"a value of {field.name!r} must be {field.type}; got {value!r}")
    if field.type == "str":
        if not isinstance(value, str):
            raise wrong
        value.encode()  # a lone surrogate is a ValueError
        return value
    if classes is not None and isinstance(value, str):
        if value not in classes:
            known = ", ".join(classes[:20]) + (", …" if len(classes) > 20 else "")
            if not new_classes:
                raise ValueError(
                    f"{value!r} must be one of the classes {known}; or use --new-class (new_classes=True) to append it"
                )
            classes.append(value)
        return classes.index(value)
    if isinstance(value, bool | str | bytes) or value is None:
        raise wrong
    if field.type == "float32":
        return float(value)
    if int(value) != value or not -(1 << 63) <= value < 1 << 63:
        raise wrong
    if classes is not None and not 0 <= value < len(classes):
        raise ValueError(f"a label must be in [0, {len(classes)}), the number of its class; got {value}")
    return int(value)
