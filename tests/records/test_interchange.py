# SPDX-License-Identifier: Apache-2.0
"""Other people's tools read a dataset with no help from us."""

from __future__ import annotations

import io
import shutil
import subprocess

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from tests.records.samples import make_sample, write

LABELS = [number % 3 for number in range(30)]


@pytest.fixture
def index(path):
    return str(path / "index.arrow")


def test_arrow(index):
    table = pa.ipc.open_file(index).read_all()
    table.validate(full=True)
    assert table.column("label").to_pylist() == LABELS
    assert table.column("boxes").to_pylist()[5] == make_sample(5)["boxes"][0].tolist()
    assert all(column.null_count == 0 for column in table.columns)


def test_polars(index):
    polars = pytest.importorskip("polars")
    frame = polars.read_ipc(index)
    assert frame["label"].to_list() == LABELS
    assert frame["image.0.height"].to_list() == [make_sample(number)["image"].shape[0] for number in range(30)]


def test_pandas(index):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_feather(index)
    assert frame["label"].tolist() == LABELS
    assert frame["name"][3] == "№ 3"


def test_duckdb(index):
    duckdb = pytest.importorskip("duckdb")
    rows = pa.ipc.open_file(pa.memory_map(index)).read_all()
    assert rows.num_rows == 30
    counts = duckdb.sql('SELECT label, count(*), sum("image.0.length") > 0 FROM rows GROUP BY label ORDER BY label')
    assert counts.fetchall() == [(0, 10, True), (1, 10, True), (2, 10, True)]


@pytest.mark.skipif(shutil.which("dd") is None, reason="no dd here")
@pytest.mark.parametrize("format_name", ["png", "webp"])
def test_dd_cuts_out_a_file_that_pillow_opens(tmp_path, format_name):
    path = write(tmp_path / "cut.hr", 9, format=format_name)
    row = pa.ipc.open_file(str(path / "index.arrow")).read_all().slice(8, 1).to_pylist()[0]
    cut = subprocess.run(
        [
            "dd",
            f"if={path}/shards/{row['image.0.shard']:06d}.hrs",
            "iflag=skip_bytes,count_bytes",
            f"skip={row['image.0.offset']}",
            f"count={row['image.0.length']}",
            "status=none",
        ],
        capture_output=True,
        check=True,
    ).stdout
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(cut))), make_sample(8)["image"])
