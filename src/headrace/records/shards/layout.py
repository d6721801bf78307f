# SPDX-License-Identifier: Apache-2.0
"""Where the index places the renditions of each shard, and whether the shard agrees (spec/dataset.md §5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.records.checksum import SummingReader, crc32c
from headrace.records.index.arrays import to_numpy
from headrace.records.index.reading import Index
from headrace.records.manifest import Manifest, Shard
from headrace.records.schema import FORMAT_NAMES, Field


@dataclass(frozen=True, slots=True)
class Extents:
    """The renditions of one shard in order. Rendition k belongs to row `first_row + k // len(owners)`."""

    first_row: int
    owners: tuple[str, ...]
    """The field of each rendition of a sample."""
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    checksums: npt.NDArray[np.uint32]

    def owner(self, which: int) -> tuple[int, str]:
        return self.first_row + which // len(self.owners), self.owners[which % len(self.owners)]


class Damage(NamedTuple):
    """A problem of a shard: where, what, and the row and field of the damaged image, if it is in one."""

    offset: int
    what: str
    row: int | None = None
    field: str | None = None


class StoredCounts:
    """Counts the renditions of each image field by format, and the bytes in shards, over tables of the index."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.n_bytes = 0
        self._fields = fields
        self._codes = {field.name: np.zeros(256, np.int64) for field in fields if field.is_pixels}

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        for field in self._fields:
            for rendition in range(field.renditions):
                self.n_bytes += int(to_numpy(rows.column(field.rendition_column(rendition, "length"))).sum())
                if field.is_pixels:
                    codes = to_numpy(rows.column(field.rendition_column(rendition, "format")))
                    self._codes[field.name] += np.bincount(codes, minlength=256)

    @property
    def formats(self) -> dict[str, dict[str, int]]:
        """The number of renditions of each field in each format."""
        return {
            name: {FORMAT_NAMES.get(code, f"code {code}"): n for code, n in enumerate(counts.tolist()) if n}
            for name, counts in self._codes.items()
        }


def aligned(n_bytes: int, align: int) -> int:
    return -(-n_bytes // align) * align


def shard_extents(index: Index, manifest: Manifest) -> Iterator[Extents | str]:
    """Yield the extents of each shard according to the index, or what is wrong with them. Reads batch by batch."""
    slots = [(f, r) for f in manifest.fields for r in range(f.renditions)]
    owners = tuple(f.name for f, _ in slots)
    batches = iter(range(len(manifest.batches)))
    held: dict[str, np.ndarray] = {part: np.zeros((0, len(slots)), np.uint64) for part in _PARTS}
    row = 0
    for number, shard in enumerate(manifest.shards):
        while len(held["shard"]) < shard.samples and (batch_number := next(batches, None)) is not None:
            batch = index.record_batch(batch_number)
            for part in _PARTS:
                columns = [to_numpy(batch.column(f.rendition_column(r, part))) for f, r in slots]
                more = np.stack(columns, 1) if columns else np.zeros((batch.num_rows, 0), np.uint64)
                held[part] = np.concatenate([held[part].astype(more.dtype), more])
        mine = {part: values[: shard.samples] for part, values in held.items()}
        held = {part: values[shard.samples :] for part, values in held.items()}
        if len(mine["shard"]) != shard.samples or (mine["shard"] != number).any():
            yield f"the {shard.samples} rows from row {row} must be those of shard {number}"
            row += shard.samples
            continue
        yield Extents(row, owners, *(mine[part].reshape(-1) for part in ("offset", "length", "checksum")))
        row += shard.samples


_PARTS = ("shard", "offset", "length", "checksum")


def check_shard(path: Path, shard: Shard, extents: Extents | None, align: int) -> list[Damage]:
    """Read a shard once from start to end. Without extents only its size and checksum are checked."""
    found: list[Damage] = []
    try:
        with SummingReader(path) as stream:
            n_bytes = stream.n_bytes
            if n_bytes != shard.n_bytes:
                what = f"the shard must have {shard.n_bytes} bytes; it has {n_bytes}"
                found.append(Damage(min(n_bytes, shard.n_bytes), what))
            stream.n_bytes = min(n_bytes, shard.n_bytes)  # the rest may be a hole of terabytes
            if extents is not None:
                found += _check_bytes(stream, extents, align, n_bytes)
            checksum = stream.finish()
    except OSError as error:
        lost = "" if extents is None else f"; it contains {shard.samples} samples"
        return [*found, Damage(0, f"cannot be read: {error.strerror or error}{lost}")]
    # If the sum is wrong but every part of the shard is right, dataset.json and the index disagree.
    if checksum != shard.checksum and not found:
        found.append(Damage(0, f"the checksum must be {shard.checksum}; it is {checksum}"))
    return found


def _check_bytes(stream: SummingReader, extents: Extents, align: int, n_bytes: int) -> Iterator[Damage]:
    """Check renditions and padding in order, in a shard of `n_bytes`."""
    expected = 0
    for which, (offset, length) in enumerate(zip(extents.offsets.tolist(), extents.lengths.tolist(), strict=True)):
        owner = extents.owner(which)
        if offset != expected or length < 1:
            what = f"the index has {length} bytes here, but the next sample must start at offset {expected}"
            yield Damage(offset, what, *owner)
            continue
        end, expected = offset + length, offset + aligned(length, align)
        if end > stream.n_bytes:
            yield Damage(offset, f"the shard ends at offset {stream.n_bytes}, before the sample", *owner)
            continue
        checksum = 0
        for piece in stream.read(end):
            checksum = crc32c(piece, checksum)
        if checksum != extents.checksums[which]:
            yield Damage(offset, f"damaged between offsets {offset} and {end - 1}", *owner)
        padding = b"".join(stream.read(expected))  # at most one piece
        if padding.strip(b"\0"):
            yield Damage(end + len(padding) - len(padding.lstrip(b"\0")), "the padding must be zero")
    if expected < n_bytes:
        yield Damage(expected, f"{n_bytes - expected} bytes do not belong to a sample")
