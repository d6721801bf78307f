# SPDX-License-Identifier: Apache-2.0
"""Use datasets whose index was forged, with right checksums: `forged_index.py DATASET FOLDER FIRST COUNT`.

A process of its own, because what it looks for are signals. It prints the number of each forgery before it is tried.
"""

from __future__ import annotations

import random
import resource
import shutil
import struct
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headrace
from headrace.errors import HeadraceError
from headrace.records import Dataset, Manifest, verify
from headrace.records.checksum import sum_blocks
from headrace.records.manifest import IndexFile

_NUMBERS = (0, 1, -1, 7, 8, 64, 255, 1 << 16, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63))
_EXPECTED = (HeadraceError, OSError, KeyError, IndexError, pa.ArrowInvalid)
_MEMORY = 6 << 30


def forge(content: bytes, seed: int) -> bytes:
    """Change a few bytes or numbers of an Arrow file, most of them in its heads."""
    rng = random.Random(seed)
    forged = bytearray(content)
    footer = struct.unpack_from("<i", forged, len(forged) - 10)[0]
    places = [range(len(forged) - 10 - footer, len(forged)), range(len(forged))]
    heads = [at for at in range(0, len(forged) - 8, 8) if forged[at : at + 4] == b"\xff\xff\xff\xff"]
    places += [range(at, min(at + 2048, len(forged))) for at in heads]
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        where = rng.choice(places)
        at = rng.randrange(where.start, where.stop)
        kind = rng.randrange(4)
        if kind == 0:
            forged[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            forged[at] = rng.randrange(256)
        elif kind == 2:
            at = min(at - at % 8, len(forged) - 8)
            struct.pack_into("<q", forged, at, rng.choice(_NUMBERS))
        else:
            at = min(at - at % 4, len(forged) - 4)
            struct.pack_into("<i", forged, at, max(-(1 << 31), min(rng.choice(_NUMBERS), (1 << 31) - 1)))
    return bytes(forged)


def seal(folder: Path, content: bytes) -> None:
    """Write an index, and a manifest with its true size and checksums."""
    (folder / "index.arrow").write_bytes(content)
    manifest = Manifest.load(folder)
    n_bytes, checksums = sum_blocks(folder / "index.arrow")
    index = IndexFile(n_bytes, manifest.index.batches, checksums)
    (folder / "dataset.json").write_bytes(replace(manifest, index=index).to_bytes())


def use(folder: Path) -> None:
    """Do all that a user can do with a dataset; errors of ours are fine, and nothing else is."""
    verify(folder, workers=1)  # reports, and raises nothing
    try:
        ds = headrace.open(folder)
    except _EXPECTED:
        return
    for action in (_read_samples, _read_table, _read_view, _read_columns, _read_batch):
        try:
            action(ds)
        except _EXPECTED:
            continue


def _read_samples(ds: Dataset) -> None:
    for row in range(len(ds)):
        try:
            ds.key(row)
            ds.read(row, "image")
            ds.value(row, "boxes")
            _ = ds[row]
        except _EXPECTED:
            continue


def _read_table(ds: Dataset) -> None:
    table = ds.table
    table.to_pylist()
    table.take(pa.array([0, len(ds) - 1, 3]))
    table.combine_chunks()
    pc.utf8_upper(table.column("key"))


def _read_view(ds: Dataset) -> None:
    ds.select(slice(None, None, 3)).table.to_pylist()


def _read_columns(ds: Dataset) -> None:
    for name in ("label", "image.0.width", "mask.0.offset", "key", "boxes"):
        try:
            _ = ds.column(name).sum()
        except _EXPECTED:
            continue


def _read_batch(ds: Dataset) -> None:
    rows = np.arange(len(ds))
    ds.gather.pixel_columns("image", 0, rows)
    ds.gather.values("label", rows)
    ds.gather.values("name", rows)


def main() -> None:
    source, folder, first, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    shutil.copytree(source, folder)
    content = (source / "index.arrow").read_bytes()
    for seed in range(first, first + count):
        print(seed, flush=True)  # noqa: T201 - read by the test
        seal(folder, forge(content, seed))
        use(folder)
    print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
