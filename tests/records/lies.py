# SPDX-License-Identifier: Apache-2.0
"""Datasets whose index says something untrue under checksums that are right."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.records import Manifest
from headrace.records.checksum import sum_blocks
from headrace.records.manifest import IndexFile


def rewrite_index(
    path: Path, copy: Path, column: str = "", *, row: int = 0, value: Any = None, rename: dict[str, str] | None = None
) -> Path:
    """Copy a dataset; change one value of its index, or the names of columns; make all sums right again."""
    shutil.copytree(path, copy)
    table = pa.ipc.open_file(pa.memory_map(str(copy / "index.arrow"))).read_all().combine_chunks()
    if column:
        number = table.schema.get_field_index(column)
        values = table.column(number).to_pylist()
        values[row] = value
        table = table.set_column(number, table.schema.field(number), pa.array(values, table.schema.field(number).type))
    table = table.rename_columns([(rename or {}).get(name, name) for name in table.column_names])
    (copy / "index.arrow").unlink()
    with pa.OSFile(str(copy / "index.arrow"), "wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    n_bytes, checksums = sum_blocks(copy / "index.arrow")
    manifest = Manifest.load(copy)
    index = IndexFile(n_bytes, manifest.index.batches, checksums)
    (copy / "dataset.json").write_bytes(replace(manifest, index=index).to_bytes())
    return copy
