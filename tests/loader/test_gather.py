# SPDX-License-Identifier: Apache-2.0
"""Columns of many rows at once equal those that Arrow gives, wherever the rows lie; a damaged index only raises."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.samples import make_sample, write

import headrace
from headrace.errors import CorruptDataset, HeadraceError
from headrace.records import Manifest
from headrace.records.checksum import sum_blocks
from headrace.records.index import writing
from headrace.records.manifest import IndexFile
from headrace.records.schema import RENDITION_COLUMNS

ROWS = 47


@pytest.fixture(scope="module", params=[65536, 5], ids=["one record batch", "ten record batches"])
def path(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "MAX_ROWS", request.param)
        path = write(tmp_path_factory.mktemp("gather") / "some.hr", ROWS)
    assert len(headrace.open(path).manifest.index.batches) == (1 if request.param > ROWS else 10)
    return path


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.integers(0, ROWS - 1), max_size=60))
def test_columns_are_those_of_the_index(path, rows):
    """In any order, repeated, from any record batches; with the types that the engine wants."""
    ds = headrace.open(path)
    chosen = np.array(rows, np.int64)
    for field in ("image", "mask"):
        gathered = ds.gather.pixel_columns(field, 0, chosen)

        assert gathered.keys() == RENDITION_COLUMNS.keys()
        for part, letter in RENDITION_COLUMNS.items():
            assert gathered[part].dtype == np.dtype({"I": "u4", "Q": "u8", "B": "u1"}[letter])
            assert gathered[part].flags.c_contiguous
            np.testing.assert_array_equal(gathered[part], ds.column(f"{field}.0.{part}")[chosen])
    labels = ds.gather.values("label", chosen)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, chosen % 3)


def test_fields_of_another_type_come_as_lists(path):
    """Texts, lists and boxes are read one by one."""
    gather = headrace.open(path).gather
    rows = np.array([40, 3, 3])

    assert gather.values("name", rows) == ["№ 40", "№ 3", "№ 3"]
    for scores, row in zip(gather.values("scores", rows), rows, strict=True):
        np.testing.assert_array_equal(scores, make_sample(int(row))["scores"])
    assert [len(boxes.labels) for boxes in gather.values("boxes", rows)] == [0, 3, 3]


def test_float_columns_keep_their_type(tmp_path):
    with headrace.Writer(tmp_path / "f.hr", fields={"image": "image", "angle": "float32"}, workers=1) as writer:
        for n in range(9):
            writer.write({"image": np.zeros((2, 2), np.uint8), "angle": n / 3})
    angles = headrace.open(tmp_path / "f.hr").gather.values("angle", np.array([8, 1]))

    assert angles.dtype == np.float32
    np.testing.assert_array_equal(angles, np.array([8 / 3, 1 / 3], np.float32))


def test_views_have_rows_of_the_whole(path):
    """A view of a view too; draws of augmentations are keyed by these rows."""
    view = headrace.open(path).select(range(40, 10, -2)).select([3, 0])

    assert view.gather.rows(np.array([1, 0, 1])).tolist() == [40, 34, 40]
    assert view.gather.values("label", view.gather.rows(np.array([0, 1]))).tolist() == [34 % 3, 40 % 3]
    for bad in ([2], [-1]):
        with pytest.raises(IndexError, match="must be in"):
            view.gather.rows(np.array(bad))


def test_several_renditions_are_told_apart(tmp_path):
    samples = [{"image": np.full((4, 4 + n, 3), n, np.uint8)} for n in range(6)]
    shares = [{"format": "raw", "share": 0.5}, {"format": "png", "share": 0.5}]
    plan = {"version": 1, "fields": {"image": {"renditions": 2, "shares": shares}}}
    headrace.build(samples, tmp_path / "two.hr", plan=plan, workers=1)
    ds = headrace.open(tmp_path / "two.hr")
    first, second = (ds.gather.pixel_columns("image", rendition, np.arange(6)) for rendition in range(2))

    np.testing.assert_array_equal(first["format"], ds.column("image.0.format"))
    np.testing.assert_array_equal(second["format"], ds.column("image.1.format"))
    assert (first["format"] != second["format"]).all()


def test_what_is_not_there_is_named(path):
    gather = headrace.open(path).gather
    with pytest.raises(KeyError, match="no rendition 1 of a field 'image'"):
        gather.pixel_columns("image", 1, np.arange(2))
    with pytest.raises(KeyError, match="no rendition 0 of a field 'depth'"):
        gather.pixel_columns("depth", 0, np.arange(2))
    with pytest.raises(KeyError, match="'depth' must be a field of values"):
        gather.values("depth", np.arange(2))
    with pytest.raises(KeyError, match="'image' must be a field of values"):
        gather.values("image", np.arange(2))


def test_an_empty_dataset_gives_empty_columns(tmp_path):
    with headrace.Writer(tmp_path / "none.hr", fields={"image": "image", "label": "int64"}, workers=1):
        pass
    gather = headrace.open(tmp_path / "none.hr").gather

    assert len(gather.pixel_columns("image", 0, np.zeros(0, np.int64))["offset"]) == 0
    assert len(gather.values("label", np.zeros(0, np.int64))) == 0


def test_opening_looks_up_nothing(path, monkeypatch):
    """Only the record batches that rows were asked from are ever taken apart."""
    ds = headrace.open(path)
    asked = []
    original = type(ds._files.index).record_batch
    monkeypatch.setattr(type(ds._files.index), "record_batch", lambda index, n: asked.append(n) or original(index, n))
    gather = ds.gather
    assert asked == []
    gather.values("label", np.array([ROWS - 1, ROWS - 1]))
    gather.values("label", np.array([ROWS - 1]))
    assert asked == [len(ds.manifest.index.batches) - 1]


def test_a_damaged_index_never_crashes(path, tmp_path):
    """Flips that no checksum is asked about on opening: an error of ours, or other numbers, but no crash."""
    copy = Path(shutil.copytree(path, tmp_path / "flip.hr"))
    content = (copy / "index.arrow").read_bytes()
    rng = np.random.default_rng(7)
    # Mostly in the metadata at the end, which says where columns lie.
    places = [*rng.integers(0, len(content), 100), *(len(content) - rng.integers(1, 3000, 200))]
    outcomes = set()
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        (copy / "index.arrow").write_bytes(damaged)
        try:
            gather = headrace.open(copy).gather
            for _ in range(3):
                rows = rng.integers(0, ROWS, 20)
                gather.pixel_columns("image", 0, rows)
                gather.values("label", rows)
            outcomes.add("numbers")
        except HeadraceError:
            outcomes.add("error")
    assert outcomes == {"numbers", "error"}


def test_columns_that_are_not_in_the_file_are_refused(path, tmp_path):
    """A compressed index has its columns elsewhere once it is read; reading by place must notice."""
    copy = Path(shutil.copytree(path, tmp_path / "packed.hr"))
    table = pa.ipc.open_file(pa.memory_map(str(copy / "index.arrow"))).read_all()
    batches = headrace.open(path).manifest.index.batches
    (copy / "index.arrow").unlink()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(copy / "index.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema, options=options) as new:
        start = 0
        for rows in batches:
            new.write_batch(table.slice(start, rows).combine_chunks().to_batches()[0])
            start += rows
    n_bytes, checksums = sum_blocks(copy / "index.arrow")
    manifest = replace(Manifest.load(copy), index=IndexFile(n_bytes, batches, checksums))
    (copy / "dataset.json").write_bytes(manifest.to_bytes())
    with pytest.raises(CorruptDataset, match=r"index\.arrow: record batch \d: its buffers must not be compressed"):
        headrace.open(copy).gather.values("label", np.arange(5))
