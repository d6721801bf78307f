# SPDX-License-Identifier: Apache-2.0
"""Where the renditions of each shard lie by the index, and whether the shard agrees (spec/dataset.md §5)."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.records._arrays import to_numpy
from headrace.records._checksum import crc32c, to_hex
from headrace.records._index import Index
from headrace.records._manifest import Manifest, Shard


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


@dataclass(slots=True)
class ShardCheck:
    """What is wrong with a shard: its damaged renditions, and offsets elsewhere."""

    renditions: list[tuple[int, str]] = field(default_factory=list)
    elsewhere: list[tuple[int, str]] = field(default_factory=list)


def aligned(n_bytes: int, align: int) -> int:
    return -(-n_bytes // align) * align


def walk_shards(index: Index, manifest: Manifest) -> Iterator[Extents | str]:
    """Yield the extents of each shard from the index, or what is wrong with them; a batch in memory at a time."""
    slots = [(f, r) for f in manifest.fields for r in range(f.renditions)]
    owners = tuple(f.name for f, _ in slots)
    batches = iter(range(len(manifest.index.batches)))
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
            yield f"the rows from {row} on are not those of the {shard.samples} samples of shard {number}"
            row += shard.samples
            continue
        yield Extents(row, owners, *(mine[part].reshape(-1) for part in ("offset", "length", "checksum")))
        row += shard.samples


_PARTS = ("shard", "offset", "length", "checksum")


def check_shard(path: Path, shard: Shard, extents: Extents | None, align: int) -> ShardCheck:
    """Read a shard once, front to back; without extents only its own size and sum are checked."""
    check = ShardCheck()
    try:
        with path.open("rb") as stream:
            n_bytes = stream.seek(0, 2)
            if n_bytes != shard.n_bytes:
                check.elsewhere.append(
                    (min(n_bytes, shard.n_bytes), f"the shard has {n_bytes} bytes and should have {shard.n_bytes}")
                )
            if n_bytes:
                with mmap.mmap(stream.fileno(), n_bytes, access=mmap.ACCESS_READ) as mapped:
                    mapped.madvise(mmap.MADV_SEQUENTIAL)
                    with memoryview(mapped) as view:
                        total = _check_bytes(view, extents, align, check)
            else:
                total = crc32c(b"")
                if extents is not None:
                    check.renditions += [(which, "the shard is empty") for which in range(len(extents.offsets))]
    except OSError as error:
        lost = "" if extents is None else f"; {shard.samples} samples lie in it"
        check.elsewhere.append((0, f"cannot be read: {error.strerror or error}{lost}"))
        return check
    # A wrong sum with every part of it right means that dataset.json and the index disagree.
    if to_hex(total) != shard.checksum and not check.renditions and not check.elsewhere:
        check.elsewhere.append((0, f"the shard's checksum is {to_hex(total)} and should be {shard.checksum}"))
    return check


def _check_bytes(view: memoryview, extents: Extents | None, align: int, check: ShardCheck) -> int:
    total, position = 0, 0
    if extents is not None:
        lengths = extents.lengths.tolist()
        for which, (offset, length) in enumerate(zip(extents.offsets.tolist(), lengths, strict=True)):
            if offset != position or length < 1:
                check.renditions.append((which, f"the index has {length} bytes here; offset {position} is next"))
                continue
            end, next_position = offset + length, offset + aligned(length, align)
            if end > len(view):
                check.renditions.append((which, f"the shard ends at {len(view)}, before the sample does"))
                position = next_position
                continue
            with view[offset:end] as content:
                if crc32c(content) != extents.checksums[which]:
                    check.renditions.append((which, f"damaged between offsets {offset} and {end - 1}"))
            with view[end:next_position] as padding:
                found = bytes(padding)
                if found.count(0) != len(found):
                    first = end + len(found) - len(found.lstrip(b"\0"))
                    check.elsewhere.append((first, "the padding is not zero"))
            with view[position:next_position] as both:
                total = crc32c(both, total)
            position = next_position
        if position < len(view):
            check.elsewhere.append((position, f"{len(view) - position} bytes that belong to no sample"))
    for start in range(position, len(view), 1 << 20):
        with view[start : start + (1 << 20)] as block:
            total = crc32c(block, total)
    return total
