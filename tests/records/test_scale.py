# SPDX-License-Identifier: Apache-2.0
"""Opening costs the same whatever the number of samples."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import headrace
from headrace.records import Manifest
from headrace.records.index.writing import write_index
from headrace.records.schema import arrow_schema

# Run in a process of its own, after the imports that any user of the package has paid for.
MEASURE = """
import sys
import headrace
from headrace import formats, records

def rss():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096

before = rss()
ds = headrace.open(sys.argv[1])
opened = rss() - before
n = len(ds)
for i in range(3000): ds[i * 7919 * 104729 % n]
print(n, opened)
"""


def inflate(path, copy, n):
    """Make a dataset whose index has n rows, all of them of one shard with the rows of a small dataset."""
    with headrace.Writer(path, fields={"image": "image", "label": "int64"}, workers=1) as writer:
        for number in range(8):
            writer.write({"image": np.full((16, 16, 3), number, np.uint8), "label": number})
    ds = headrace.open(path)
    manifest, rows = ds.manifest, ds.table.combine_chunks()
    rows = pa.concat_tables([rows] * 8192).combine_chunks()
    path.rename(copy)
    tables = (rows.slice(0, min(len(rows), n - start)) for start in range(0, n, len(rows)))
    index = write_index(copy / "index.arrow", manifest.fields, (t.cast(arrow_schema(manifest.fields)) for t in tables))
    shard = replace(manifest.shards[0], samples=n)
    (copy / "dataset.json").write_bytes(replace(manifest, index=index, shards=(shard,)).to_bytes())
    assert Manifest.load(copy).samples == n


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("n", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_opening_a_large_dataset(tmp_path, n):
    """Opening reads no rows, so it takes under 10 MB; samples from anywhere can be read."""
    inflate(tmp_path / "small.hr", tmp_path / "large.hr", n)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "large.hr")]
    found = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()

    samples, opened = map(int, found)
    assert samples == n
    assert opened < 10e6
