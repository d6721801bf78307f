# SPDX-License-Identifier: Apache-2.0
"""COCO annotations with their images."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest
from tests.sources.pictures import decoded, keys, pixels, png, samples, write, write_coco

import headrace
from headrace.errors import BadSource
from headrace.sources import CocoSource
from headrace.sources import _coco_json as coco_json
from headrace.sources._coco_shapes import polygons_of
from headrace.transforms import HorizontalFlip

DOG = {"id": 11, "image_id": 4, "category_id": 7, "bbox": [1.5, 2, 3, 4], "area": 12.0, "iscrowd": 0,
       "segmentation": [[1, 2, 3, 4, 5, 6]]}  # fmt: skip
CAT = {"id": 12, "image_id": 2, "category_id": 3, "bbox": [0, 0, 5, 6], "area": 30, "iscrowd": 1,
       "segmentation": {"counts": [7, 2, 4, 2, 15], "size": [6, 5]}}  # fmt: skip


def test_boxes_labels_and_all_the_rest(tmp_path):
    """In the order of image ids, images without objects included."""
    source = CocoSource(write_coco(tmp_path, [4, 2, 9], [DOG, CAT, {**CAT, "image_id": 4, "id": 13}]))
    cat, dogs, nothing = samples(source)

    assert source.classes == ("cat", "dog")
    assert keys(source) == ["2.png", "4.png", "9.png"]
    assert np.array_equal(decoded(cat["image"]), pixels(2))
    boxes, labels = dogs["boxes"]
    assert np.array_equal(boxes, np.array([[1.5, 2, 4.5, 6], [0, 0, 5, 6]], np.float32))
    assert np.array_equal(labels, [1, 0])
    assert (boxes.dtype, labels.dtype) == (np.float32, np.int64)
    assert dogs["annotation_id"] == [11, 13]
    assert dogs["iscrowd"] == [0, 1]
    assert dogs["area"] == [12.0, 30.0]
    assert dogs["segmentation"] == [DOG["segmentation"], [[1, 1, 3, 1, 3, 3, 1, 3]]]
    assert [sample["image_id"] for sample in (cat, dogs, nothing)] == [2, 4, 9]
    assert nothing["boxes"][0].shape == (0, 4)
    assert nothing["segmentation"] == []
    assert set(cat) == set(source.fields)


PERSON = {"id": 7, "name": "person", "keypoints": ["nose", "left_eye", "right_eye"], "skeleton": [[1, 2], [1, 3]]}
POINTS = [3, 1, 2, 4, 1, 1, 0, 0, 0]


def test_keypoints_with_their_names_and_skeleton(tmp_path):
    """A field if a category has them; the names lead to the pairs that a mirrored image exchanges."""
    annotations = [{**DOG, "keypoints": POINTS}, {**CAT, "image_id": 4}]
    path = write_coco(tmp_path, [4], annotations, [PERSON, {"id": 3, "name": "cat"}])

    (sample,) = samples(CocoSource(path))
    headrace.build(path, tmp_path / "a.hr", kind="coco")
    headrace.build(tmp_path / "a.hr", tmp_path / "b.hr")

    assert sample["keypoints"] == [POINTS, []]
    for name in ("a.hr", "b.hr"):
        dataset = headrace.open(tmp_path / name, transform=[HorizontalFlip(1)])
        found = dataset.keypoints["keypoints"]
        assert found.names == ("nose", "left_eye", "right_eye")
        assert found.skeleton == ((0, 1), (0, 2))
        assert found.flip_pairs == ((1, 2),)
        seen, nothing = dataset[0]["keypoints"]
        assert seen.tolist() == [2, 1, 2, 0, 0, 0, 1, 1, 1]  # of 5 pixels; the left eye became the right one
        assert len(nothing) == 0


def test_categories_with_different_keypoints_have_no_names(tmp_path):
    """One field cannot have two lists of names."""
    other = {"id": 3, "name": "cat", "keypoints": ["tail"], "skeleton": []}
    source = CocoSource(write_coco(tmp_path, [4], [{**DOG, "keypoints": POINTS}], [PERSON, other]))
    assert source.keypoints == {}
    assert samples(source)[0]["keypoints"] == [POINTS]


@pytest.mark.parametrize(
    "change",
    [{"keypoints": "nose"}, {"keypoints": ["a", "a"]}, {"skeleton": [[1, 9]]}, {"skeleton": [[1]]}, {"skeleton": 5}],
)
def test_keypoints_that_make_no_sense_are_named(tmp_path, change):
    with pytest.raises(BadSource, match="keypoints of a category"):
        CocoSource(write_coco(tmp_path, [4], [DOG], [{**PERSON, **change}]))


@pytest.mark.parametrize("wrong", [5, ["a"], [1, 2], [1, 2, float("nan")], [10**400, 1, 1]])
def test_keypoints_of_an_object_are_checked(tmp_path, wrong):
    source = CocoSource(write_coco(tmp_path, [4], [{**DOG, "keypoints": wrong}], [PERSON]))
    with pytest.raises(BadSource, match="image 4: keypoints must be"):
        samples(source)


def drawn(polygons, height, width):
    """The pixels of rectangles."""
    mask = np.zeros((height, width), bool)
    for left, top, right, _, _, bottom, *_ in polygons:
        mask[int(top) : int(bottom), int(left) : int(right)] = True
    return mask


def compressed(counts):
    """The text of COCO's own tools for runs."""
    text = ""
    for at, count in enumerate(counts):
        value, more = count - (counts[at - 2] if at > 2 else 0), True
        while more:
            code, value = value & 31, value >> 5
            more = value != -1 if code & 16 else value != 0
            text += chr(code + (32 if more else 0) + 48)
    return text


@pytest.mark.parametrize("seed", range(20))
def test_runs_become_rectangles_of_the_same_pixels(seed):
    """As numbers, and compressed."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 40, 2).tolist()
    mask = rng.random((height, width)) < rng.choice([0.0, 0.1, 0.5, 0.95, 1.0])
    groups = [(value, len(list(group))) for value, group in itertools.groupby(mask.T.reshape(-1).tolist())]
    counts = [0] * groups[0][0] + [count for _, count in groups]

    for given in (counts, compressed(counts)):
        assert np.array_equal(drawn(polygons_of({"counts": given, "size": [height, width]}, ""), height, width), mask)


@pytest.mark.parametrize(
    "wrong",
    [
        5,
        "text",
        {},
        {"counts": [1], "size": [1]},
        {"counts": [3], "size": [2, 2]},
        {"counts": [-1, 5], "size": [2, 2]},
        {"counts": [0] * 3, "size": [0, 0]},
        {"counts": "~", "size": [2, 2]},
        {"counts": "o", "size": [2, 2]},
        {"counts": [10**12], "size": [10**6, 10**6]},
        [[1, 2, 3]],
        [[1, 2, 3, 4, 5, float("nan")]],
        [["a", "b"]],
        [[10**400] * 6],
    ],
)
def test_a_segmentation_that_is_not_one_names_the_image(wrong):
    """Whatever the file holds."""
    with pytest.raises(BadSource, match="here: a"):
        polygons_of(wrong, "here")


def test_copies_load_what_the_original_listed(tmp_path):
    """And take nothing of the JSON with them."""
    source = CocoSource(write_coco(tmp_path, range(50), [{**DOG, "segmentation": [[0] * 5000]}]))
    items = list(source.items())
    pickled = pickle.dumps(source)

    assert len(pickled) < 1000
    assert len(pickle.loads(pickled).load(items[4])["boxes"][0]) == 1


def test_images_are_looked_for_where_people_put_them(tmp_path):
    """Or given."""
    path = write_coco(tmp_path, [1], [])
    (tmp_path / "images").mkdir()
    (tmp_path / "train2017").rename(tmp_path / "images" / "train2017")

    assert len(samples(CocoSource(path))) == 1
    (tmp_path / "images" / "train2017").rename(tmp_path / "elsewhere")
    with pytest.raises(BadSource, match="give the folder of the images"):
        CocoSource(path)
    assert len(samples(CocoSource(path, tmp_path / "elsewhere"))) == 1


@pytest.mark.parametrize(
    "name",
    ["../1.png", "/etc/passwd", "a/../../1.png", "..\\1.png", ""],
    ids=["up", "absolute", "inside", "dos", "empty"],
)
def test_hostile_file_names_are_refused(tmp_path, name):
    """As the first image, and later."""
    path = write_coco(tmp_path, [1, 2], [])
    write(tmp_path, {"1.png": png(0)})
    for number in (0, 1):
        contents = json.loads(path.read_text())
        contents["images"][number]["file_name"] = name
        forged = tmp_path / "annotations" / "instances_forged.json"
        forged.write_text(json.dumps(contents))
        with pytest.raises(BadSource):
            samples(CocoSource(forged, tmp_path / "train2017") if number else CocoSource(forged))


def test_links_that_leave_the_folder_are_refused(tmp_path):
    """The file name looks harmless."""
    path = write_coco(tmp_path, [1], [])
    write(tmp_path, {"secret.png": png(0)})
    (tmp_path / "train2017" / "1.png").unlink()
    (tmp_path / "train2017" / "1.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(BadSource, match="leaves the source"):
        samples(CocoSource(path))


def test_a_missing_image_is_named(tmp_path):
    """By its path."""
    path = write_coco(tmp_path, [1, 2], [])
    (tmp_path / "train2017" / "2.png").unlink()
    with pytest.raises(BadSource, match=r"2\.png"):
        samples(CocoSource(path))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"bbox": [1, 2, 3]}, "bbox"),
        ({"bbox": None}, "bbox"),
        ({"bbox": [1, 2, 3, float("nan")]}, "finite"),
        ({"bbox": [1, 2, 3, 1e400]}, "finite"),
        ({"category_id": 99}, "category 99"),
        ({"category_id": [1]}, "category"),
        ({"id": "x"}, "id of an annotation"),
        ({"area": "large"}, "area of an annotation"),
    ],
)
def test_annotations_that_make_no_sense_are_named(tmp_path, change, what):
    """By the image that they belong to."""
    source = CocoSource(write_coco(tmp_path, [4], [{**DOG, **change}]))
    (item,) = source.items()
    with pytest.raises(BadSource, match=what):
        source.load(item)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "nonsense",
        '{"images": []}',
        '{"images": {}, "annotations": [], "categories": []}',
        '{"images": [1], "annotations": [], "categories": []}',
        '{"images": [], "annotations": [], "categories": []}',
        '{"images": [{"id": 1}], "annotations": [], "categories": []}',
        '{"images": [{"id": 1.5, "file_name": "1.png"}], "annotations": [], "categories": []}',
        '{"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}], "annotations": [], "categories": []}',
        '{"images": [{"id": 1, "file_name": "1.png"}], "annotations": [{"image_id": 2}], "categories": []}',
        '{"images": [{"id": 1, "file_name": "1.png"}], "annotations": [], "categories": [{"id": 1}]}',
        '{"images": [{"id": 1, "file_name": "1.png"} "annotations": []}',
        '{"images": ' + "[" * 100_000,
        '{"x": ' + '{"a":' * 100_000,
    ],
)
def test_broken_json_is_refused(tmp_path, text):
    """Not JSON, not COCO, or contradicting itself."""
    write(tmp_path, {"annotations/instances_x.json": text.encode(), "1.png": png(0), "a": png(0), "b": png(0)})
    with pytest.raises(BadSource, match="instances_x"):
        CocoSource(tmp_path / "annotations" / "instances_x.json")


def test_json_of_absurd_size_is_not_read(tmp_path, monkeypatch):
    """The limit is checked before the file is opened."""
    path = write_coco(tmp_path, [1], [])
    monkeypatch.setattr(coco_json, "MAX_JSON_BYTES", 10)
    with pytest.raises(BadSource, match="at most 10 bytes"):
        CocoSource(path)
