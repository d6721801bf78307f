# SPDX-License-Identifier: Apache-2.0
"""Parquet files with images in them."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.pictures import damaged, decoded, keys, pixels, png, samples

from headrace.errors import BadSource
from headrace.sources import ParquetSource

HF = {
    "info": {
        "features": {
            "image": {"_type": "Image"},
            "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
            "caption": {"_type": "Value", "dtype": "string"},
        }
    }
}


def write_hugging_face(path, start, count, **options):
    """The layout in which Hugging Face publishes."""
    numbers = range(start, start + count)
    table = pa.table(
        {
            "image": [{"bytes": png(number), "path": f"{number}.png"} for number in numbers],
            "label": [number % 2 for number in numbers],
            "caption": [f"number {number}" for number in numbers],
        }
    )
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(HF)}), path, **options)


def test_rows_come_in_order_with_their_class_names(tmp_path):
    """Over files and row groups."""
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for number, path in enumerate(paths):
        write_hugging_face(path, 50 * number, 50, row_group_size=20)
    source = ParquetSource(paths)
    found = samples(source)

    assert source.fields == {"image": "image", "label": "int64", "caption": "str"}
    assert source.classes == ("cat", "dog")
    assert keys(source) == [f"{name}.parquet/{row:09d}" for name in "ab" for row in range(50)]
    for number, sample in enumerate(found):
        assert np.array_equal(decoded(sample["image"]), pixels(number))
        assert (sample["label"], sample["caption"]) == (number % 2, f"number {number}")


def test_items_load_in_any_order_and_in_copies(tmp_path):
    """Backward too, in a pickled copy."""
    write_hugging_face(tmp_path / "a.parquet", 0, 70, row_group_size=40)
    original = ParquetSource([tmp_path / "a.parquet"])
    source, items = pickle.loads(pickle.dumps((original, list(original.items()))))
    random.Random(0).shuffle(items)

    assert [source.load(item)["caption"] for item in items] == [f"number {int(item.key[-9:])}" for item in items]


def test_sizes_are_known_without_reading(tmp_path):
    """On average of a row group, near enough to cut shards by."""
    write_hugging_face(tmp_path / "a.parquet", 0, 50, compression="none", use_dictionary=False)
    total = sum(item.n_bytes for item in ParquetSource([tmp_path / "a.parquet"]).items())

    assert total == pytest.approx(sum(len(png(number)) for number in range(50)), rel=0.5)


def test_columns_become_fields_of_our_types(tmp_path):
    """Every kind of column that people have."""
    table = pa.table(
        {
            "photo": pa.array([png(0)], pa.large_binary()),
            "depth_mask": pa.array([{"bytes": png(1), "path": None}]),
            "blob": pa.array([b"\0\1"], pa.binary()),
            "small": pa.array([7], pa.uint8()),
            "flag": pa.array([True]),
            "ratio": pa.array([0.5], pa.float64()),
            "name": pa.array(["x"]).dictionary_encode(),
            "ints": pa.array([[1, 2]], pa.list_(pa.int32())),
            "reals": pa.array([[0.5]], pa.large_list(pa.float32())),
            "words": pa.array([["a", "b"]]),
            "objects": pa.array([{"bbox": [[1.0, 2.0]], "id": [3]}]),
            "taken": pa.array([dt.date(2020, 1, 2)]),
            "a.b": pa.array([1]),
            "key": pa.array([2]),
            "__index_level_0__": pa.array([0]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetSource([tmp_path / "a.parquet"])
    (sample,) = samples(source)

    assert source.fields == {
        "photo": "image",
        "depth_mask": "mask",
        "blob": "bytes",
        "small": "int64",
        "flag": "int64",
        "ratio": "float32",
        "name": "str",
        "ints": "list<int64>",
        "reals": "list<float32>",
        "words": "list<str>",
        "objects": "str",
        "taken": "str",
        "a_b": "int64",
        "key_": "int64",
    }
    del sample["photo"], sample["depth_mask"]
    assert sample == {
        "blob": b"\0\1",
        "small": 7,
        "flag": 1,
        "ratio": 0.5,
        "name": "x",
        "ints": [1, 2],
        "reals": [0.5],
        "words": ["a", "b"],
        "objects": '{"bbox": [[1.0, 2.0]], "id": [3]}',
        "taken": '"2020-01-02"',
        "a_b": 1,
        "key_": 2,
    }


@pytest.mark.parametrize(
    ("column", "what"),
    [
        (
            pa.array([{"bytes": None, "path": "/etc/passwd"}], pa.struct({"bytes": pa.binary(), "path": pa.string()})),
            "path",
        ),
        (pa.array([None], pa.struct({"bytes": pa.binary(), "path": pa.string()})), "null"),
        (pa.array([{"bytes": b"", "path": None}], pa.struct({"bytes": pa.binary(), "path": pa.string()})), "empty"),
    ],
    ids=["path only", "null", "empty"],
)
def test_rows_without_bytes_are_named(tmp_path, column, what):
    """No path of a file is ever opened."""
    pq.write_table(pa.table({"image": column}), tmp_path / "a.parquet")
    source = ParquetSource([tmp_path / "a.parquet"])
    (item,) = source.items()
    with pytest.raises(BadSource, match=what):
        source.load(item)


@pytest.mark.parametrize(
    "values",
    [
        {"small": pa.array([None], pa.int64())},
        {"big": pa.array([2**64 - 1], pa.uint64())},
        {"list": pa.array([[1, None]])},
    ],
    ids=["null", "too large", "null in a list"],
)
def test_values_that_do_not_fit_are_named(tmp_path, values):
    """Nothing is made up for them."""
    pq.write_table(pa.table({"image": [{"bytes": png(0), "path": None}], **values}), tmp_path / "a.parquet")
    source = ParquetSource([tmp_path / "a.parquet"])
    (item,) = source.items()
    with pytest.raises(BadSource, match=next(iter(values))):
        source.load(item)


def test_files_without_images_or_with_other_columns_are_refused(tmp_path):
    """The message lists the columns."""
    pq.write_table(pa.table({"text": ["a"], "blob": [b"xyz"]}), tmp_path / "a.parquet")
    with pytest.raises(BadSource, match="text, blob"):
        ParquetSource([tmp_path / "a.parquet"])
    write_hugging_face(tmp_path / "b.parquet", 0, 1)
    pq.write_table(pa.table({"image": [{"bytes": png(0), "path": None}]}), tmp_path / "c.parquet")
    with pytest.raises(BadSource, match=r"c\.parquet"):
        samples(ParquetSource([tmp_path / "b.parquet", tmp_path / "c.parquet"]))


def test_an_image_feature_of_another_type_is_refused(tmp_path):
    """The schema says image, the column says number."""
    table = pa.table({"image": [1]}).replace_schema_metadata({"huggingface": json.dumps(HF)})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(BadSource, match="int64"):
        ParquetSource([tmp_path / "a.parquet"])


def test_damaged_files_are_named(tmp_path):
    """Truncations and flipped bytes raise BadSource or nothing."""
    write_hugging_face(tmp_path / "whole.parquet", 0, 30)
    path = tmp_path / "damaged.parquet"
    messages = []
    for contents in damaged((tmp_path / "whole.parquet").read_bytes(), 60):
        path.write_bytes(contents)
        try:
            samples(ParquetSource([path]))
        except BadSource as error:
            messages.append(str(error))

    assert len(messages) > 10
    assert all("damaged.parquet" in message for message in messages)
