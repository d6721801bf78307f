# SPDX-License-Identifier: Apache-2.0
"""YOLO datasets as tools write them: splits, names, boxes, polygons and keypoints, and files that are wrong."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import headrace
from headrace.errors import BadSource, BuildError, MissingExtra
from headrace.sources import open_source
from headrace.sources.yolo._labels import parse_labels
from headrace.sources.yolo._source import label_file

YAML = "path: ../somewhere/else\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n"


def picture(path, width=40, height=20, exif=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(path, **({} if exif is None else {"exif": exif}))
    return pixels


def write(root, labels, yaml=YAML):
    """Write a dataset: the labels of each image by its path; None: no label file."""
    for name, text in labels.items():
        picture(root / f"images/{name}.png")
        if text is not None:
            target = root / f"labels/{name}.txt"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    root.mkdir(exist_ok=True)
    if yaml is not None:
        (root / "data.yaml").write_text(yaml)
    return root


def built(source, tmp_path, **options):
    headrace.build(source, tmp_path / "out.hr", workers=1, **options)
    return headrace.open(tmp_path / "out.hr")


def test_boxes_splits_and_names(tmp_path):
    """Boxes become corners in pixels; an image without a label file has none; splits are a field."""
    labels = {"train/a": "1 0.5 0.5 0.25 0.5\n0 0.125 0.25 0.25 0.5\n", "train/b": None, "val/c": ""}
    ds = built(write(tmp_path / "in", labels), tmp_path)

    assert dict(ds.fields) == {"image": "image", "boxes": "boxes", "split": "str"}
    assert ds.classes == ["cat", "dog"]
    assert [ds[row]["split"] for row in range(3)] == ["train", "train", "val"]
    assert ds[0]["boxes"].xyxy.tolist() == [[15, 5, 25, 15], [0, 0, 10, 10]]
    assert ds[0]["boxes"].labels.tolist() == [1, 0]
    assert [len(ds[row]["boxes"].labels) for row in (1, 2)] == [0, 0]
    assert ds.key(0) == "images/train/a.png"
    np.testing.assert_array_equal(ds[0]["image"], np.asarray(Image.open(tmp_path / "in/images/train/a.png")))


def test_polygons(tmp_path):
    """A polygon has its box; a line that is a box has no polygon. Both move with the image."""
    labels = {"train/a": "0 0.25 0 0.75 0 0.75 0.5 0.25 0.5\n1 0.5 0.5 1 1\n", "val/b": "0 0.5 0.5 0.5 0.5"}
    ds = built(write(tmp_path / "in", labels), tmp_path)

    assert ds[0]["boxes"].xyxy.tolist() == [[10, 0, 30, 10], [0, 0, 40, 20]]
    assert [[list(map(float, polygon)) for polygon in box] for box in ds[0]["segmentation"]] == [
        [[10, 0, 30, 0, 30, 10, 10, 10]],
        [],
    ]
    assert list(ds[1]["segmentation"]) == [[]]


def test_keypoints(tmp_path):
    """`kpt_shape` says how many numbers a keypoint has."""
    yaml = YAML + "kpt_shape: [2, 3]\n"
    labels = {"train/a": "0 0.5 0.5 0.5 0.5 0.25 0.5 2 0 0 0\n", "val/b": None}
    ds = built(write(tmp_path / "in", labels, yaml), tmp_path)

    assert ds.fields["keypoints"] == "keypoints"
    assert list(ds[0]["keypoints"][0]) == [10, 10, 2, 0, 0, 0]


@pytest.mark.parametrize(
    "train",
    ["images/train", "./images/train", "../images/train", "/data/images/train", "train.txt"],
)
def test_paths_of_exports(tmp_path, train):
    """Roboflow writes `../train/images`; others list images in a text file; nothing leads out of the folder."""
    root = write(tmp_path / "in", {"train/a": "0 0.5 0.5 1 1"}, f"train: {train}\nnames: [cat]\n")
    (root / "train.txt").write_text("./images/train/a.png\n")
    if train.startswith("/"):
        with pytest.raises(BadSource, match=r"train.*is not in"):
            open_source(root)
    else:
        assert [item.key for item in open_source(root).items()] == ["images/train/a.png"]


def test_a_folder_without_yaml_is_recognized(tmp_path):
    """Folders of images and text files are enough; `classes.txt` names the classes."""
    root = write(tmp_path / "in", {"a": "1 0.5 0.5 1 1"}, None)
    (root / "classes.txt").write_text("cat\ndog\n")
    source = open_source(root)

    assert (source.kind, source.classes) == ("yolo", ("cat", "dog"))
    assert open_source(write(tmp_path / "two", {"train/a": "0 0.5 0.5 1 1"}), split="train").kind == "yolo"


def test_boxes_are_those_of_the_upright_image(tmp_path):
    """An EXIF orientation exchanges width and height, as Ultralytics reads it."""
    root = write(tmp_path / "in", {}, "train: images\nnames: [cat]\n")
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(root / "images/a.jpg", exif=exif)
    (root / "labels").mkdir()
    (root / "labels/a.txt").write_text("0 0.5 0.25 1 0.5")
    ds = built(root, tmp_path, apply_orientation=True)

    assert ds[0]["image"].shape == (40, 20, 3)
    assert ds[0]["boxes"].xyxy.tolist() == [[0, 0, 20, 20]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2 0.5 0.5 1 1", "below 2"),
        ("-1 0.5 0.5 1 1", "whole number"),
        ("0.5 0.5 0.5 1 1", "whole number"),
        ("0 50 50 10 10", "0 to 1"),
        ("0 0.5 0.5 1", "4 numbers"),
        ("0 0.5 0.5 1 1 1", "4 numbers"),
        ("cat 0.5 0.5 1 1", "must be numbers"),
        ("0 nan 0.5 1 1", "finite"),
        ("0 1e999 0.5 1 1", "finite"),
    ],
)
def test_a_line_that_is_wrong_names_its_file_and_number(tmp_path, line, message):
    """The sample fails; the error has the file and the line."""
    with pytest.raises(BuildError, match=rf"labels/train/a\.txt, line 2: .*{message}"):
        built(write(tmp_path / "in", {"train/a": f"0 0.5 0.5 1 1\n{line}\n", "val/b": ""}), tmp_path)


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("train: images/none", "not in"),
        ("train: ../../etc", "not in"),
        ("train: images/../../x", "not in"),
        ("train: 5", "a path or a list"),
        ("names: [a]", "at least one of"),
        ("train: images/train\nnames: 5", "'names'"),
        ("train: images/train\nkpt_shape: [1e9, 3]", "kpt_shape"),
        ("[1, 2", "must be YAML"),
        ("just text", "must have entries"),
        ("train: !!python/object/apply:os.system ['echo']", "must be YAML"),
        ("a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\ntrain: *c", "a path or a list"),
        ("#" * (1 << 20) + "##", "at most"),
    ],
)
def test_a_yaml_that_is_wrong_is_refused(tmp_path, yaml, message):
    """Its paths stay in the folder and it runs no code."""
    with pytest.raises(BadSource, match=message):
        open_source(write(tmp_path / "in", {"train/a": ""}, yaml))


def test_links_out_of_the_folder_are_refused(tmp_path):
    """Neither images nor labels are read through them."""
    root = write(tmp_path / "in", {"train/a": None, "val/b": None})
    (tmp_path / "secret.txt").write_text("0 0.5 0.5 1 1")
    (root / "labels/train").mkdir(parents=True)
    (root / "labels/train/a.txt").symlink_to(tmp_path / "secret.txt")

    with pytest.raises(BuildError, match="leaves the source"):
        built(root, tmp_path)


def test_yaml_needs_its_package(tmp_path, monkeypatch):
    """The error names the extra."""
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(MissingExtra, match=r"headrace\[yolo\]"):
        open_source(write(tmp_path / "in", {"train/a": ""}))


def test_the_last_folder_named_images_counts():
    """As in Ultralytics."""
    assert label_file("images/x/images/a.b.jpg") == "images/x/labels/a.b.txt"
    assert label_file("train/a.jpg") == "train/a.txt"


@given(st.text(alphabet="0123456789.e-+ \n\tnaix", max_size=200))
def test_any_text_gives_labels_or_an_error(text):
    """Nothing else happens, and boxes have classes."""
    try:
        found = parse_labels(text, 40, 20, keypoints=None, n_classes=None, where="a.txt")
    except BadSource:
        return
    assert len(found.boxes) == len(found.classes) == len(found.polygons)
