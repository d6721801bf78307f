# SPDX-License-Identifier: Apache-2.0
"""Every kind of source comes out of a dataset as it went in, in every lossless format: pixels, labels, boxes, masks."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.building.pictures import make_folder, make_image, tree

import headrace
from headrace import formats
from headrace.sources import Encoded, open_source

COUNT = 12


def file_bytes(image, kind="PNG"):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind)
    return stream.getvalue()


def make_plain_folder(root):
    root.mkdir()
    for n in range(COUNT):
        gray_or_color = make_image(n)[:, :, 0] if n % 3 == 0 else make_image(n)
        (root / f"{n:02d}.{'jpg' if n % 4 == 1 else 'png'}").write_bytes(
            file_bytes(gray_or_color, "JPEG" if n % 4 == 1 else "PNG")
        )


def make_classes(root):
    make_folder(root, COUNT)


def make_webdataset(root):
    root.mkdir()
    for shard in range(2):
        with tarfile.open(root / f"{shard}.tar", "w") as archive:
            for n in range(shard, COUNT, 2):
                parts = {"png": file_bytes(make_image(n)), "cls": str(n % 5).encode(), "json": b'{"n": %d}' % n}
                for suffix, content in parts.items():
                    member = tarfile.TarInfo(f"part/{n:04d}.{suffix}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def make_parquet(root):
    root.mkdir()
    images = [{"bytes": file_bytes(make_image(n)), "path": f"{n}.png"} for n in range(COUNT)]
    columns = {"image": images, "label": [n % 5 for n in range(COUNT)], "caption": [f"№ {n}" for n in range(COUNT)]}
    pq.write_table(pa.table(columns), root / "train.parquet", row_group_size=5)


def make_coco(root):
    (root / "annotations").mkdir(parents=True)
    (root / "val2017").mkdir()
    images, annotations = [], []
    for n in range(COUNT):
        image = make_image(n, 60)
        (root / "val2017" / f"{n:012d}.png").write_bytes(file_bytes(image))
        images.append({"id": 100 - n, "file_name": f"{n:012d}.png", "height": image.shape[0], "width": image.shape[1]})
        annotations += [
            {
                "id": n * 10 + k,
                "image_id": 100 - n,
                "category_id": 3 + 4 * (k % 2),
                "bbox": [k + 0.5, k, 5.25, 7],
                "area": 36.75,
                "iscrowd": 0,
                "segmentation": [[1, 2, 3, 4, 5, 6.5]],
            }
            for k in range(n % 4)
        ]
    categories = [{"id": 3, "name": "car"}, {"id": 7, "name": "bus"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations" / "instances_val2017.json").write_text(json.dumps(content))


def make_cityscapes(root):
    for n in range(COUNT):
        split, city = ("train", "aachen") if n % 3 else ("val", "ulm")
        scene = f"{city}_{n:06d}_000019"
        image = make_image(n)
        mask = (image[:, :, 0] // 30).astype(np.uint8)
        for kind, end, content in (("leftImg8bit", "leftImg8bit", image), ("gtFine", "gtFine_labelIds", mask)):
            path = root / kind / split / city / f"{scene}_{end}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file_bytes(content))


MAKERS = {
    "folder": make_plain_folder,
    "classes": make_classes,
    "webdataset": make_webdataset,
    "parquet": make_parquet,
    "coco": make_coco,
    "cityscapes": make_cityscapes,
}


@pytest.fixture(scope="module", params=MAKERS)
def imported(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("importers") / request.param
    MAKERS[request.param](root)
    return request.param, root


def assert_value(expected, actual, kind):
    kind = kind.partition(" of ")[0]
    if kind in ("image", "mask"):
        if isinstance(expected, Encoded):
            expected = formats.decode(expected.data, color="index" if kind == "mask" else "keep")
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
    elif kind == "boxes":
        np.testing.assert_array_equal(actual.xyxy, expected[0])
        np.testing.assert_array_equal(actual.labels, expected[1])
    elif kind in ("list<int64>", "list<float32>"):
        np.testing.assert_array_equal(actual, np.asarray(expected, kind[5:-1]))
    elif kind == "polygons":
        assert [[polygon.tolist() for polygon in polygons] for polygons in actual] == expected
    else:
        assert actual == expected


@pytest.mark.parametrize("format_name", ["hri:dense", "hri:fast", "png", "webp", "raw", "keep"])
def test_what_goes_in_comes_out(imported, tmp_path, format_name):
    kind, root = imported
    report = headrace.build(root, tmp_path / "a.hr", format=format_name, workers=1, shard_size=9000)
    source, ds = open_source(root), headrace.open(tmp_path / "a.hr", color="keep")
    assert source.kind == kind
    assert report.samples == len(ds) == COUNT
    assert {field.name: field.declared for field in ds.manifest.fields} == dict(source.fields)
    assert ds.classes == (None if source.classes is None else list(source.classes))
    for index, item in enumerate(source.items()):
        assert ds.key(index) == item.key
        expected, actual = source.load(item), ds[index]
        for name, field_kind in source.fields.items():
            assert_value(expected[name], actual[name], field_kind)
    assert ds.verify(workers=1).ok


@pytest.mark.usefixtures("processes")
def test_processes_give_the_same_bytes(imported, tmp_path):
    _, root = imported
    headrace.build(root, tmp_path / "1.hr", workers=1, shard_size=9000)
    headrace.build(root, tmp_path / "2.hr", workers=2, shard_size=9000)
    assert tree(tmp_path / "1.hr") == tree(tmp_path / "2.hr")
