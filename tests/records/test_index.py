# SPDX-License-Identifier: Apache-2.0
"""Whatever is written to the index is read back from it, row by row and by Arrow, and lies cannot lead out of it."""

from __future__ import annotations

import string
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.lies import rewrite_index

import headrace
from headrace.errors import CorruptDataset, HeadraceError, UnsupportedDataset
from headrace.records.index import writing
from headrace.records.index.arrays import make_array
from headrace.records.index.columns import Batch
from headrace.records.schema import arrow_schema, make_fields

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32, allow_nan=False)
VALUES = {
    "int64": INTS,
    "float32": FLOATS,
    "str": TEXT,
    "bytes": st.binary(max_size=12),
    "list<int64>": st.lists(INTS, max_size=4),
    "list<float32>": st.lists(FLOATS, max_size=4),
    "list<str>": st.lists(TEXT, max_size=3),
    "list<bytes>": st.lists(st.binary(max_size=5), max_size=3),
    "list<list<float32>>": st.lists(st.lists(FLOATS, max_size=3), max_size=3),
    "list<list<list<str>>>": st.lists(st.lists(st.lists(TEXT, max_size=2), max_size=2), max_size=2),
}
NAMES = st.text(string.ascii_letters + string.digits + "é -", min_size=1, max_size=6).filter(lambda n: n != "key")


def plain(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(item) for item in value] if isinstance(value, list) else value


@st.composite
def tables(draw):
    kinds = draw(st.dictionaries(NAMES, st.sampled_from(sorted(VALUES)), max_size=4))
    rows = draw(st.lists(st.fixed_dictionaries({name: VALUES[kind] for name, kind in kinds.items()}), max_size=9))
    return kinds, rows


@settings(max_examples=150, deadline=None)
@given(table=tables(), cuts=st.lists(st.integers(0, 9), max_size=3), most=st.integers(1, 5))
def test_rows_survive_the_index(tmp_path_factory, table, cuts, most):
    """Any fields and values, in parts of any size, cut into batches of any size."""
    kinds, rows = table
    fields = make_fields(kinds)
    schema = arrow_schema(fields)
    whole = pa.Table.from_pylist([{"key": str(n), **row} for n, row in enumerate(rows)], schema=schema)
    edges = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    parts = [whole.slice(start, stop - start) for start, stop in pairwise(edges)]
    path = tmp_path_factory.mktemp("index") / "index.arrow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "MAX_ROWS", most)
        written = writing.write_index(path, fields, parts)

    assert sum(written.batches) == len(rows)
    assert all(0 < n <= most for n in written.batches)
    assert all(n == most for n in written.batches[:-1])
    assert written.n_bytes == path.stat().st_size
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    assert reader.read_all().to_pylist() == whole.to_pylist()
    read = [
        {name: plain(batch.values[name][row]) for name in kinds} | {"key": batch.key[row]}
        for number in range(reader.num_record_batches)
        for batch in [Batch(reader.get_batch(number), fields)]
        for row in range(reader.get_batch(number).num_rows)
    ]
    assert read == whole.to_pylist()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_arrays_are_those_of_pyarrow(data):
    """Made by way of buffers, without pandas, they equal what `pyarrow.array` makes."""
    kind = data.draw(st.sampled_from(sorted(VALUES)))
    values = data.draw(st.lists(VALUES[kind], max_size=8))
    arrow_type = arrow_schema(make_fields({"x": kind})).field("x").type
    array = make_array(kind, values, arrow_type)
    array.validate(full=True)
    assert array.equals(pa.array(values, arrow_type))


def test_pandas_is_not_imported(tmp_path):
    """Left to itself pyarrow imports it wherever it is installed; a stand-in shows who tries."""
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas was imported')")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np, headrace\n"
        "samples = [{'image': np.zeros((9, 9), np.uint8), 'label': n, 'name': 'x'} for n in range(5)]\n"
        "headrace.build(samples, sys.argv[1] + '/a.hr', workers=1)\n"
        "ds = headrace.open(sys.argv[1] + '/a.hr')\n"
        "ds[0]; ds.targets; ds.verify(); ds.select([1]).table; list(ds.split({'a': 0.5, 'b': 0.5})['a'])\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_batches_end_when_their_values_are_large(tmp_path, monkeypatch):
    """Rows of 400 bytes and a limit of 1000: the third row reaches it."""
    monkeypatch.setattr(writing, "MAX_VALUE_BYTES", 1000)
    fields = make_fields({"blob": "bytes", "words": "list<list<str>>"})
    rows = [{"key": "k", "blob": bytes(199), "words": [["é" * 50], ["x" * 50, "y" * 50]]} for _ in range(8)]
    tables = [pa.Table.from_pylist(rows[:4], schema=arrow_schema(fields))] * 2
    written = writing.write_index(tmp_path / "index.arrow", fields, tables)
    assert written.batches == (3, 3, 2)


def test_the_bytes_do_not_depend_on_how_rows_came(tmp_path):
    fields = make_fields({"a": "list<str>", "b": "int64", "c": "boxes"})
    rows = [
        {"key": str(n), "a": ["x" * n], "b": n, "c": [[1.0, 2.0, 3.0, n]] * (n % 3), "c.labels": [n] * (n % 3)}
        for n in range(50)
    ]
    whole = pa.Table.from_pylist(rows, schema=arrow_schema(fields))
    writing.write_index(tmp_path / "one", fields, [whole])
    writing.write_index(tmp_path / "many", fields, [whole.slice(n, 7) for n in range(0, 50, 7)])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()


@pytest.mark.parametrize(
    ("column", "value", "error", "message"),
    [
        ("image.0.shard", 77, CorruptDataset, "the index names shard 77"),
        ("image.0.offset", 2**63, CorruptDataset, "but the shard has"),
        ("image.0.offset", 2**64 - 1, CorruptDataset, "but the shard has"),
        ("image.0.length", 2**64 - 1, CorruptDataset, "but the shard has"),
        ("image.0.length", 0, CorruptDataset, "0 bytes at offset"),
        ("image.0.length", 3, HeadraceError, "sample 'sample/4'"),
        ("image.0.format", 200, UnsupportedDataset, "format code 200"),
    ],
)
def test_an_index_that_lies_is_caught(path, tmp_path, column, value, error, message):
    """Even with right checksums everywhere."""
    lying = rewrite_index(path, tmp_path / "lie.hr", column, row=4, value=value)
    ds = headrace.open(lying)
    assert ds[3]["label"] == 0
    with pytest.raises(error, match=message):
        ds[4]
    assert not ds.verify(workers=1).ok


def test_an_index_of_other_columns_is_refused(path, tmp_path):
    lying = rewrite_index(path, tmp_path / "lie.hr", rename={"label": "lable"})
    with pytest.raises(CorruptDataset, match="columns are not those"):
        headrace.open(lying)
    assert not headrace.records.verify(lying).ok


def test_a_cut_or_missing_index_is_named(path, tmp_path):
    copy = rewrite_index(path, tmp_path / "cut.hr")
    index = copy / "index.arrow"
    index.write_bytes(index.read_bytes()[:-10])
    with pytest.raises(CorruptDataset, match=r"index\.arrow: offset \d+: the file must have"):
        headrace.open(copy)
    index.unlink()
    with pytest.raises(CorruptDataset, match=r"index\.arrow is missing"):
        headrace.open(copy)


def test_a_damaged_index_never_crashes(path, tmp_path):
    """Flips that no checksum is asked about on opening: an error of ours, or a value, but no crash."""
    copy = Path(rewrite_index(path, tmp_path / "flip.hr"))
    content = (copy / "index.arrow").read_bytes()
    rng = np.random.default_rng(7)
    for position in rng.integers(0, len(content), 300):
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(rng.integers(8))
        (copy / "index.arrow").write_bytes(damaged)
        try:
            for sample in headrace.open(copy):
                assert sample.keys() == {"image", "mask", "label", "boxes", "name", "scores"}
        except HeadraceError:
            pass
