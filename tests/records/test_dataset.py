# SPDX-License-Identifier: Apache-2.0
"""A dataset is a sequence of samples, with views that copy none of them."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from PIL import Image
from tests.records.samples import CLASSES, FIELDS, assert_same, make_sample, write

import headrace
from headrace.errors import CorruptDataset, CorruptImage, ImageTooLarge
from headrace.records._extract import safe_name
from headrace.records.shards import local as shards


def test_samples_come_back_as_they_were_written(ds):
    assert len(ds) == 30
    for number, sample in enumerate(ds):
        assert_same(make_sample(number), sample)


def test_it_is_indexed_like_a_list(ds):
    assert_same(make_sample(29), ds[-1])
    assert_same(make_sample(3), ds[np.int64(3)])
    assert [sample["name"] for sample in ds[2:9:3]] == ["№ 2", "№ 5", "№ 8"]
    assert [sample["name"] for sample in ds[-2:]] == ["№ 28", "№ 29"]
    assert [sample["name"] for sample in ds.__getitems__([5, 1])] == ["№ 5", "№ 1"]
    for index in (30, -31):
        with pytest.raises(IndexError, match=r"must be in \[-30, 30\)"):
            ds[index]
    with pytest.raises(TypeError):
        ds["image"]


def test_it_says_what_it_holds(ds, path):
    assert dict(ds.fields) == FIELDS
    assert ds.formats == {"image": {"hri:dense": 30}, "mask": {"hri:dense": 30}}
    assert ds.classes == CLASSES
    assert ds.class_to_idx == {"ape": 0, "bee": 1, "cat": 2}
    assert ds.targets.tolist() == [number % 3 for number in range(30)]
    assert ds.key(7) == "sample/7"
    assert (
        repr(ds) == f"<Dataset {str(path)!r}: 30 samples of " + ", ".join(f"{n}: {t}" for n, t in FIELDS.items()) + ">"
    )


def test_the_table_is_the_index(ds):
    table = ds.table
    assert table.num_rows == 30
    assert table.column("key").to_pylist() == [f"sample/{number}" for number in range(30)]
    assert table.column("label").to_pylist() == ds.targets.tolist()
    assert ds.select([4, 2]).table.column("name").to_pylist() == ["№ 4", "№ 2"]


def test_read_gives_the_bytes_of_a_rendition(ds):
    data, rendition = ds.read(4, "image")

    assert isinstance(data, memoryview)
    assert data.readonly
    assert len(data) == rendition.n_bytes
    assert rendition.format == "hri:dense"
    assert rendition.shape == make_sample(4)["image"].shape
    assert rendition.offset % 64 == 0
    np.testing.assert_array_equal(headrace.decode(data), make_sample(4)["image"])


def test_read_chooses_among_renditions(tmp_path):
    plan = {
        "version": 1,
        "fields": {
            "image": {
                "renditions": 2,
                "shares": [{"format": f, "share": s} for f, s in [("png", 0.25), ("raw", 0.25), ("hri:fast", 0.5)]],
            }
        },
    }
    ds = headrace.open(write(tmp_path / "plan.hr", 12, plan=plan))
    assert sum(ds.formats["image"].values()) == 24
    seen = set()
    for row in range(12):
        assert_same(make_sample(row), ds[row])
        found = [ds.table.column(f"image.{r}.format")[row].as_py() for r in (0, 1)]
        seen.update(found)
        assert len(set(found)) == 2
        for format_name, code in (("hri:fast", 1), ("png", 3), ("raw", 6)):
            if code in found:
                data, rendition = ds.read(row, "image", format=format_name)
                assert rendition.format == format_name
                if format_name == "png":
                    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), make_sample(row)["image"])
            else:
                with pytest.raises(KeyError, match=f"not as {format_name}"):
                    ds.read(row, "image", format=format_name)
    assert seen == {1, 3, 6}
    with pytest.raises(KeyError, match="must be an image or mask field"):
        ds.read(0, "label")
    with pytest.raises(ValueError, match="got 'tiff'"):
        ds.read(0, "image", format="tiff")


def test_select_is_a_view(ds):
    assert [s["name"] for s in ds.select([3, -1, 3])] == ["№ 3", "№ 29", "№ 3"]
    assert [s["name"] for s in ds.select(slice(10, 0, -4))] == ["№ 10", "№ 6", "№ 2"]
    assert [s["label"] for s in ds.select(ds.targets == 2)] == [2] * 10
    assert [s["name"] for s in ds.select(range(20, 30)).select([1, 0])] == ["№ 21", "№ 20"]
    assert ds.select(i for i in (1, 2)).key(1) == "sample/2"
    assert len(ds.select([])) == 0
    with pytest.raises(IndexError):
        ds.select([30])
    with pytest.raises(TypeError, match="integers"):
        ds.select([0.5])
    with pytest.raises(ValueError, match="mask"):
        ds.select([True, False])


def test_splits_cover_all_samples_once(ds):
    parts = ds.split({"train": 0.8, "val": 0.1, "test": 0.1}, seed=4)

    assert {name: len(part) for name, part in parts.items()} == {"train": 24, "val": 3, "test": 3}
    keys = [part.key(i) for part in parts.values() for i in range(len(part))]
    assert sorted(keys) == sorted(ds.key(i) for i in range(30))
    again = ds.split({"train": 0.8, "val": 0.1, "test": 0.1}, seed=4)
    assert [s["name"] for s in again["val"]] == [s["name"] for s in parts["val"]]
    other = ds.split({"train": 0.8, "val": 0.1, "test": 0.1}, seed=5)
    assert [s["name"] for s in other["train"]] != [s["name"] for s in parts["train"]]
    with pytest.raises(ValueError, match="add up to 1"):
        ds.split({"train": 0.8, "val": 0.1})


@pytest.mark.parametrize("format_name", ["hri:fast", "png", "raw", "webp"])
def test_images_of_more_than_max_pixels_are_refused(tmp_path, format_name):
    """Of formats that decode a region by itself, a crop counts and not the image that it is taken from."""
    with headrace.Writer(tmp_path / "a.hr", fields={"image": "image"}, workers=1, format=format_name) as writer:
        writer.write({"image": np.zeros((40, 50, 3), np.uint8)}, key="a")

    def open_limited(max_pixels, transform=None):
        return headrace.open(tmp_path / "a.hr", max_pixels=max_pixels, transform=transform)

    crop = headrace.transforms.CenterCrop(10)
    assert open_limited(2000)[0]["image"].shape == (40, 50, 3)
    assert open_limited(2000, crop)[0]["image"].shape == (3, 10, 10)
    for transform in (None, headrace.transforms.Pad(1), headrace.transforms.Resize((8, 8))):
        with pytest.raises(ImageTooLarge, match="max_pixels=1999"):
            _ = open_limited(1999, transform)[0]
    if format_name in ("hri:fast", "raw"):
        assert open_limited(100, crop)[0]["image"].shape == (3, 10, 10)
    else:
        with pytest.raises(ImageTooLarge, match="max_pixels=100"):
            _ = open_limited(100, crop)[0]


def test_a_split_by_a_list_gives_a_list(ds):
    """The same parts as by names, in the order of the fractions."""
    parts = ds.split([0.8, 0.2], seed=4)
    named = ds.split({"train": 0.8, "val": 0.2}, seed=4)

    assert [len(part) for part in parts] == [24, 6]
    for part, other in zip(parts, named.values(), strict=True):
        assert np.array_equal(part.rows, other.rows)
    train, _ = ds.split((0.5, 0.5))
    assert len(train) == 15
    with pytest.raises(ValueError, match="add up to 1"):
        ds.split([0.8, 0.1])


def test_named_splits_are_those_of_the_split_column(tmp_path):
    names = ["train", "test", "train", "val", "train"]
    with headrace.Writer(tmp_path / "a.hr", fields={"label": "int64", "split": "str"}, workers=1) as writer:
        for number, name in enumerate(names):
            writer.write({"label": number, "split": name}, key=str(number))
    ds = headrace.open(tmp_path / "a.hr")

    assert [sample["label"] for sample in ds.split_named("train")] == [0, 2, 4]
    assert [sample["label"] for sample in ds.select([4, 1, 0]).split_named("train")] == [4, 0]
    with pytest.raises(KeyError, match=r"no split 'dev'; its splits are 'test', 'train', 'val'"):
        ds.split_named("dev")
    with pytest.raises(KeyError, match="no split 'val'; its splits are 'train'"):
        ds.select([0, 2]).split_named("val")


def test_a_dataset_without_splits_says_so(ds):
    with pytest.raises(KeyError, match="has no str field 'split'; its fields are image, mask"):
        ds.split_named("train")


def test_a_split_is_the_same_for_ever(ds):
    """Frozen: a changed split would let validation samples slip into training."""
    assert [ds.split({"a": 0.9, "b": 0.1}, seed=0)["b"].key(i) for i in range(3)] == FROZEN


FROZEN = ["sample/0", "sample/22", "sample/23"]


def test_transforms_are_applied_in_order(path):
    ds = headrace.open(path, transform=[lambda s: s["label"], lambda label: label * 10])
    assert ds[2] == 20
    assert headrace.open(path, transform=lambda s: s["name"])[1:3] == ["№ 1", "№ 2"]


def test_color_is_rgb_unless_kept(tmp_path):
    gray = np.arange(35, dtype=np.uint8).reshape(5, 7)
    with headrace.Writer(tmp_path / "gray.hr", fields={"image": "image", "mask": "mask"}, workers=1) as writer:
        writer.write({"image": gray, "mask": gray})
    sample = headrace.open(tmp_path / "gray.hr")[0]
    np.testing.assert_array_equal(sample["image"], np.stack([gray] * 3, 2))
    np.testing.assert_array_equal(sample["mask"], gray)
    np.testing.assert_array_equal(headrace.open(tmp_path / "gray.hr", color="keep")[0]["image"], gray)
    with pytest.raises(ValueError, match="color"):
        headrace.open(tmp_path / "gray.hr", color="BGR")


def test_a_sample_may_be_written_to(ds):
    sample = ds[3]
    sample["image"][:] = 0
    sample["boxes"].xyxy[:] = 0
    assert_same(make_sample(3), ds[3])


@pytest.mark.parametrize("format_name", ["hri:fast", "hri:dense", "png", "webp", "raw", "jpeg:90"])
def test_a_damaged_sample_is_named(tmp_path, format_name):
    path = write(tmp_path / "damaged.hr", 5, format=format_name)
    _, rendition = headrace.open(path).read(3, "image")
    shard = path / rendition.shard
    content = bytearray(shard.read_bytes())
    content[rendition.offset + rendition.n_bytes * 3 // 4] ^= 0x10
    shard.write_bytes(content)

    ds = headrace.open(path)
    assert_same(make_sample(2) | {"image": ds[2]["image"]}, ds[2])
    with pytest.raises(
        CorruptImage, match=r"sample 'sample/3' \(row 3\): field 'image' at offset \d+ of .*000000\.hrs"
    ):
        ds[3]


def test_a_missing_or_cut_shard_is_named(tmp_path):
    path = write(tmp_path / "cut.hr", 16)
    shard = path / "shards" / "000001.hrs"
    content = shard.read_bytes()
    shard.write_bytes(content[:-64])
    with pytest.raises(CorruptDataset, match=rf"sample/8.*000001\.hrs.*it has {len(content) - 64}"):
        headrace.open(path)[8]
    shard.unlink()
    with pytest.raises(CorruptDataset, match=r"000001\.hrs is missing"):
        headrace.open(path)[8]
    assert_same(make_sample(15), headrace.open(path)[15])


def test_what_is_no_dataset_is_explained(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no dataset"):
        headrace.open(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="not a dataset"):
        headrace.open(tmp_path)
    (tmp_path / ".building").mkdir()
    with pytest.raises(FileNotFoundError, match="unfinished build"):
        headrace.open(tmp_path)


def test_more_shards_than_handles(path, monkeypatch):
    ds = headrace.open(path)
    monkeypatch.setattr(shards, "MAX_OPEN", 2)
    kept, rendition = ds.read(0, "image")
    for number in (29, 0, 15, 8, 22, 0):
        assert_same(make_sample(number), ds[number])
    assert len(ds._files.shards._handles) <= 2
    assert len(kept) == rendition.n_bytes
    assert zlib.crc32(kept) == zlib.crc32(ds.read(0, "image")[0])


@pytest.mark.parametrize("key", ["", "..", "/", "\\", "../..", " . ", "\0", "nul", "a//b", "ü/é", "-rf", "x" * 5000])
def test_names_of_extracted_files_are_safe(key):
    name = safe_name(key)
    assert name
    assert not name.startswith("/")
    assert all(part not in ("", ".", "..") and len(part.encode()) <= 201 for part in name.split("/"))
    assert "\\" not in name
    assert "\0" not in name
