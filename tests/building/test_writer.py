# SPDX-License-Identifier: Apache-2.0
"""A program writes a dataset sample by sample."""

from __future__ import annotations

import numpy as np
import pytest
from tests.building.pictures import make_image, tree

import headrace
from headrace.errors import BuildError

FIELDS = {"image": "image", "label": "int64"}


def write(path, count=20, **options):
    with headrace.Writer(path, fields=FIELDS, shard_samples=6, **options) as writer:
        for number in range(count):
            writer.write({"image": make_image(number), "label": number})
    return writer


@pytest.mark.parametrize("workers", [1, 3])
def test_samples_are_there_when_the_block_ends(tmp_path, workers):
    writer = write(tmp_path / "a.hr", workers=workers)
    ds = headrace.open(tmp_path / "a.hr")
    assert writer.report.samples == len(ds) == 20
    assert writer.report.shards == 4
    assert ds.key(13) == "00000013"
    for number, sample in enumerate(ds):
        np.testing.assert_array_equal(sample["image"], make_image(number))
        assert sample["label"] == number
    write(tmp_path / "b.hr", workers=2)
    assert tree(tmp_path / "a.hr") == tree(tmp_path / "b.hr")


def test_an_error_in_the_block_leaves_no_dataset(tmp_path):
    writer = headrace.Writer(tmp_path / "a.hr", fields=FIELDS)

    def fail():
        with writer:
            writer.write({"image": make_image(1), "label": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not (tmp_path / "a.hr" / "dataset.json").exists()
    with pytest.raises(BuildError, match="not finished"):
        _ = writer.report
    with pytest.raises(BuildError, match="unfinished build, which a Writer cannot continue"):
        write(tmp_path / "a.hr")
    assert write(tmp_path / "a.hr", force=True).report.samples == 20


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"image": make_image(0)}, "field 'label' is missing"),
        ({"image": make_image(0), "label": 1.5}, "field 'label'"),
        ({"image": make_image(0), "label": 2**63}, "must fit in 64 bits"),
        ({"image": np.zeros((4, 4), np.float32), "label": 1}, r"got float32 \[4, 4\]"),
        ({"image": np.zeros((0, 4), np.uint8), "label": 1}, r"uint8 \[0, 4\]"),
        ({"image": "photo.png", "label": 1}, "field 'image'"),
    ],
)
def test_a_wrong_sample_is_named(tmp_path, sample, message):
    def write_one():
        with headrace.Writer(tmp_path / "a.hr", fields=FIELDS, workers=1) as writer:
            writer.write(sample)

    with pytest.raises(BuildError, match=rf"sample '00000000': .*{message}"):
        write_one()
    with headrace.Writer(tmp_path / "b.hr", fields=FIELDS, workers=1, on_error="skip") as writer:
        writer.write(sample)
        writer.write({"image": make_image(1), "label": 1})
    assert [skipped.key for skipped in writer.report.skipped] == ["00000000"]


def test_arrays_of_any_layout(tmp_path):
    base = np.arange(3 * 40 * 50, dtype=np.uint16).reshape(40, 50, 3)
    arrays = [base, base[::-2, ::3], base.transpose(1, 0, 2), base.astype(">u2"), base[..., :1], base.view(np.int16)]
    with headrace.Writer(tmp_path / "a.hr", fields={"image": "image"}, workers=2) as writer:
        for array in arrays:
            writer.write({"image": array})
        writer.write({"image": base[..., 0] > 100})
    ds = headrace.open(tmp_path / "a.hr", color="keep")
    for index, array in enumerate(arrays):
        np.testing.assert_array_equal(ds[index]["image"], array.squeeze())
        assert ds[index]["image"].dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(ds[-1]["image"], (base[..., 0] > 100).astype(np.uint8))


@pytest.mark.parametrize("key", ["", "x" * 5000, "\ud800"])
def test_a_key_must_be_a_short_text(tmp_path, key):
    def write_one():
        with headrace.Writer(tmp_path / "a.hr", fields={"n": "int64"}, workers=1) as writer:
            writer.write({"n": 1}, key=key)

    with pytest.raises(BuildError, match=r"key|surrogates"):
        write_one()


def test_any_text_serves_as_a_key(tmp_path):
    keys = ["../../etc/passwd", "/root", "a\nb", "снег", "x" * 4096, "C:\\con"]
    with headrace.Writer(tmp_path / "a.hr", fields={"n": "int64"}, workers=1) as writer:
        for key in keys:
            writer.write({"n": 1}, key=key)
    ds = headrace.open(tmp_path / "a.hr")
    assert [ds.key(index) for index in range(len(keys))] == keys


def test_a_dataset_without_images_or_samples(tmp_path):
    with headrace.Writer(tmp_path / "none.hr", fields={"n": "int64"}):
        pass
    ds = headrace.open(tmp_path / "none.hr")
    assert len(ds) == 0
    assert list(ds) == []
    assert ds.verify().ok
    assert ds.table.num_rows == 0


@pytest.mark.parametrize("name", ["", "a.b", "_x", "key", "x\n"])
def test_a_field_needs_a_name(tmp_path, name):
    with pytest.raises(ValueError, match="a field name must have"):
        headrace.Writer(tmp_path / "a.hr", fields={name: "int64"})
    with pytest.raises(ValueError, match="got 'video'"):
        headrace.Writer(tmp_path / "a.hr", fields={"x": "video"})
