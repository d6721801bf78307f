# SPDX-License-Identifier: Apache-2.0
"""Train, val and test are separated, or a message says how to choose."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.pictures import keys, png, samples, write, write_coco, write_tar

import headrace
from headrace.errors import BadSource
from headrace.sources import open_source


def splits(source):
    return [sample["split"] for sample in samples(source)]


def write_parquet(path, count, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": png(n), "path": None} for n in range(count)]
    pq.write_table(pa.table({"image": images, **columns}), path)


def test_parquet_files(tmp_path):
    write_parquet(tmp_path / "data" / "train-00000-of-00002.parquet", 2)
    write_parquet(tmp_path / "data" / "train-00001-of-00002.parquet", 1)
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", 1)
    source = open_source(tmp_path)
    assert source.fields == {"image": "image", "split": "str"}
    assert splits(source) == ["test", "train", "train", "train"]
    assert keys(source)[0] == "test-00000-of-00001.parquet/000000000"
    train = open_source(tmp_path, split="train")
    assert train.fields == {"image": "image"}
    assert len(keys(train)) == 3
    with pytest.raises(BadSource, match="no split 'val'; it has test, train"):
        open_source(tmp_path, split="val")


def test_a_column_of_splits_is_left_as_it_is(tmp_path):
    write_parquet(tmp_path / "train.parquet", 1, split=["a"])
    write_parquet(tmp_path / "test.parquet", 1, split=["b"])
    assert splits(open_source(tmp_path)) == ["b", "a"]


def test_tars(tmp_path):
    for name in ("imagenet-train-000000.tar", "imagenet-train-000001.tar", "imagenet-val-000000.tar"):
        write_tar(tmp_path / name, [("0.png", png(0))])
    assert splits(open_source(tmp_path)) == ["train", "train", "val"]
    assert splits(open_source(tmp_path / "*.tar")) == ["train", "train", "val"]
    assert keys(open_source(tmp_path, split="val")) == ["imagenet-val-000000.tar/0"]
    write_tar(tmp_path / "more.tar", [("0.png", png(0))])
    with pytest.raises(BadSource, match=r"more\.tar is not; choose one split with --split train"):
        open_source(tmp_path)


def test_tars_in_folders(tmp_path):
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        write_tar(tmp_path / name / "0.tar", [("0.png", png(0))])
    for source in (open_source(tmp_path), open_source(tmp_path / "*" / "*.tar")):
        assert splits(source) == ["test", "train"]
        assert keys(source) == ["test/0.tar/0", "train/0.tar/0"]


def test_one_split_is_no_split(tmp_path):
    write_parquet(tmp_path / "train-0.parquet", 1)
    write_parquet(tmp_path / "train-1.parquet", 1)
    assert open_source(tmp_path).fields == {"image": "image"}


def test_class_folders(tmp_path):
    """Labels mean the same in all splits, though one lacks a class."""
    write(tmp_path, {"train/ant/0.png": png(0), "train/bee/1.png": png(1), "train/cow/2.png": png(2)})
    write(tmp_path, {"val/bee/3.png": png(3), "val/cow/4.png": png(4)})
    source = open_source(tmp_path)
    assert source.classes == ("ant", "bee", "cow")
    found = [(sample["split"], sample["label"]) for sample in samples(source)]
    assert found == [("train", 0), ("train", 1), ("train", 2), ("val", 1), ("val", 2)]
    assert keys(source)[-1] == "val/cow/4.png"
    assert open_source(tmp_path, split="val").classes == ("bee", "cow")
    assert open_source(tmp_path, "classes").classes == ("train", "val")


def test_a_split_of_another_layout_needs_a_choice(tmp_path):
    write(tmp_path, {"train/ant/0.png": png(0), "train/bee/1.png": png(1), "test/2.png": png(2)})
    with pytest.raises(BadSource, match=r"test is folder, train is classes.*--split"):
        open_source(tmp_path)
    assert len(keys(open_source(tmp_path, split="train"))) == 2


def test_folders_beside_splits_need_a_choice(tmp_path):
    write(tmp_path, {"train/0.png": png(0), "test/1.png": png(1), "extra/2.png": png(2)})
    with pytest.raises(BadSource, match=r"beside them extra; choose one split with --split test"):
        open_source(tmp_path)


def test_images_by_split(tmp_path):
    """As YOLO has them, with text files for labels."""
    write(tmp_path, {"images/train/0.png": png(0), "images/val/1.png": png(1), "labels/train/0.txt": b""})
    assert splits(open_source(tmp_path)) == ["train", "val"]
    write(tmp_path / "b", {"train/images/0.png": png(0), "valid/images/1.png": png(1), "train/labels/0.txt": b""})
    assert splits(open_source(tmp_path / "b")) == ["train", "valid"]


def write_roboflow(root, *names):
    for number, name in enumerate(names):
        tree = {
            "images": [{"id": 0, "file_name": f"{number}.png"}],
            "annotations": [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [0, 0, 2, 3]}],
            "categories": [{"id": 0, "name": "all"}, {"id": 1, "name": "cat"}],
        }
        write(root / name, {f"{number}.png": png(number), "_annotations.coco.json": json.dumps(tree).encode()})


def test_roboflow(tmp_path):
    write_roboflow(tmp_path, "train", "valid", "test")
    source = open_source(tmp_path)
    assert source.kind == "coco"
    assert splits(source) == ["test", "train", "valid"]
    assert keys(source) == ["test/2.png", "train/0.png", "valid/1.png"]
    assert source.classes == ("all", "cat")
    assert open_source(tmp_path / "train").kind == "coco"
    assert keys(open_source(tmp_path, split="valid")) == ["1.png"]


def test_coco_by_split(tmp_path):
    write_coco(tmp_path, [1], [])
    write_coco(tmp_path, [1], [], name="instances_val2017.json")
    with pytest.raises(BadSource, match="--split train"):
        open_source(tmp_path)
    assert keys(open_source(tmp_path, split="train")) == ["1.png"]


def test_a_dataset_by_split(tmp_path):
    write(tmp_path / "root", {"train/0.png": png(0), "train/1.png": png(1), "val/2.png": png(2)})
    headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1)
    ds = headrace.open(tmp_path / "a.hr")
    assert [ds.value(n, "split") for n in range(3)] == ["train", "train", "val"]
    report = headrace.build(tmp_path / "a.hr", tmp_path / "b.hr", workers=1, split="val")
    assert report.samples == 1
    assert headrace.open(tmp_path / "b.hr").manifest.options["split"] == "val"
    with pytest.raises(BadSource, match="no split 'test'; its splits are 'train', 'val'"):
        open_source(tmp_path / "a.hr", split="test")
