# SPDX-License-Identifier: Apache-2.0
"""One shard of a dataset that is merged: its samples, copied images, and rows with new offsets and labels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import BuildError, CorruptDataset
from headrace.records import Dataset
from headrace.records.checksum import crc32c
from headrace.records.index.arrays import from_numpy, to_numpy
from headrace.records.index.reading import Index
from headrace.records.manifest import Shard, shard_name
from headrace.records.schema import Field
from headrace.records.shards.layout import aligned
from headrace.records.shards.local import ShardFiles


@dataclass(frozen=True, slots=True)
class ShardPiece:
    """One shard of a source."""

    dataset: Dataset
    number: int
    first_row: int
    """The first of its stored rows."""
    labels: npt.NDArray[np.int64] | None
    """The new number of each class; None keeps them."""

    @property
    def shard(self) -> Shard:
        return self.dataset.manifest.shards[self.number]

    @property
    def samples(self) -> int:
        return self.shard.samples - self.shard.dropped


def live_rows(piece: ShardPiece) -> pa.Table:
    dataset = piece.dataset
    index = Index(dataset.path, dataset.manifest)
    rows = index.samples_between(piece.first_row, piece.first_row + piece.shard.samples)
    if rows.num_rows != piece.samples:
        raise CorruptDataset(
            f"{dataset.address}: shard {piece.number} must have {piece.samples} samples that are not dropped; the "
            f"index has {rows.num_rows}: `headrace verify` lists all damage"
        )
    return rows


def _slots(fields: tuple[Field, ...]) -> list[str]:
    """Return the first part of the names of the columns of each rendition, in the order of shards."""
    return [f"{field.name}.{rendition}" for field in fields for rendition in range(field.renditions)]


def copy_images(piece: ShardPiece, rows: pa.Table, path: Path, end: int) -> tuple[npt.NDArray[np.uint64], int]:
    """Copy the images of these rows to offset `end`; return their offsets [rows, renditions], and the new end."""
    dataset, manifest = piece.dataset, piece.dataset.manifest
    shards = ShardFiles(dataset.path, manifest.shards, manifest.check_current)
    align, slots = manifest.align, _slots(manifest.fields)
    empty = np.zeros((rows.num_rows, 0), np.uint64)
    columns = {
        part: np.stack([to_numpy(rows.column(f"{slot}.{part}")).astype(np.uint64) for slot in slots], 1)
        if slots
        else empty
        for part in ("shard", "offset", "length", "checksum")
    }
    places = np.zeros(columns["offset"].shape, np.uint64)
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        for row, slot in np.ndindex(*places.shape):
            shard, offset, length, checksum = (int(columns[part][row, slot]) for part in columns)
            found, written = 0, end
            for block in shards.blocks(shard, offset, length):
                found = crc32c(block, found)
                written += _write(handle, block, written)
            if found != checksum:
                raise CorruptDataset(
                    f"sample {rows.column('key')[row].as_py()!r} at offset {offset} of "
                    f"{dataset.path / shard_name(shard)}: the bytes do not have their checksum; restore the file, "
                    f"or drop the sample"
                )
            places[row, slot] = end
            end += aligned(length, align)
    finally:
        os.close(handle)
    return places, end


def _write(handle: int, block: memoryview, offset: int) -> int:
    done = 0
    while done < len(block):
        done += os.pwrite(handle, block[done:], offset + done)
    return done


def changed_rows(rows: pa.Table, piece: ShardPiece, shard: int, offsets: npt.NDArray[np.uint64]) -> pa.Table:
    """Return rows with their new shard, offsets and labels."""
    fields, labels = piece.dataset.manifest.fields, piece.labels

    def put(name: str, array: pa.Array) -> None:
        nonlocal rows
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), array)

    for number, slot in enumerate(_slots(fields)):
        put(f"{slot}.shard", from_numpy(np.full(rows.num_rows, shard, np.uint32), pa.uint32()))
        put(f"{slot}.offset", from_numpy(np.ascontiguousarray(offsets[:, number]), pa.uint64()))
    if labels is None:
        return rows
    for field in fields:
        if (field.name, field.type) == ("label", "int64"):
            put(field.name, from_numpy(_mapped(to_numpy(rows.column(field.name)), labels), pa.int64()))
        elif field.type == "boxes":
            name = f"{field.name}.labels"
            lists = rows.column(name).combine_chunks()
            lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
            values = from_numpy(_mapped(to_numpy(lists.flatten()), labels), pa.int64())
            starts = to_numpy(lists.offsets)
            put(
                name, pa.LargeListArray.from_arrays(from_numpy(starts - starts[0], pa.int64()), values, type=lists.type)
            )
    return rows


def _mapped(numbers: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(labels):
        raise BuildError(
            f"labels must be in [0, {len(labels)}), the number of classes; found {numbers.min()} to {numbers.max()}"
        )
    mapped: npt.NDArray[Any] = labels[numbers]
    return mapped
