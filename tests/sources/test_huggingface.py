# SPDX-License-Identifier: Apache-2.0
"""Hugging Face datasets: objects of the library if it is installed, a stand-in, and folders as it writes them."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import headrace
from headrace.errors import BadSource, BuildError
from headrace.sources import open_source

COUNT = 20
CLASSES = ["cat", "dog"]
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": CLASSES},
    "latent": {"_type": "Array3D", "shape": [2, 3, 4], "dtype": "float16"},
    "caption": {"_type": "Value", "dtype": "string"},
}
FIELDS = {"image": "image", "label": "int64", "latent": "tensor<float16,[2,3,4]>", "caption": "str"}


def png(number):
    buffer = io.BytesIO()
    Image.fromarray(picture(number)).save(buffer, "PNG")
    return buffer.getvalue()


def picture(number):
    return np.random.default_rng(number).integers(0, 256, (9, 7, 3), np.uint8)


def latent(number):
    return np.random.default_rng(number).standard_normal((2, 3, 4)).astype(np.float16)


def table(numbers=range(COUNT)):
    """The rows as the library stores them."""
    rows = list(numbers)
    images = [{"bytes": png(row), "path": f"{row}.png"} for row in rows]
    latents = pa.array([latent(row).tolist() for row in rows], pa.list_(pa.list_(pa.list_(pa.float16()))))
    found = pa.table(
        {
            "image": pa.array(images, pa.struct({"bytes": pa.binary(), "path": pa.string()})),
            "label": pa.array([row % 2 for row in rows], pa.int64()),
            "latent": latents,
            "caption": pa.array([f"№ {row}" for row in rows]),
        }
    )
    return found.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})


def save(folder, rows, files=2):
    """Write a folder as `save_to_disk` does."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{number:05d}-of-{files:05d}.arrow" for number in range(files)]
    size = -(-len(rows) // files)
    for number, name in enumerate(names):
        part = rows.slice(number * size, size)
        with pa.OSFile(str(folder / name), "wb") as stream, pa.ipc.new_stream(stream, part.schema) as writer:
            writer.write_table(part, max_chunksize=3)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    return folder


def check(path, numbers=range(COUNT)):
    """Compare a built dataset with the rows, bit for bit; its images keep their bytes."""
    ds = headrace.open(path)
    assert {name: kind for name, kind in ds.fields.items() if name != "split"} == FIELDS
    assert ds.classes == CLASSES
    for at, number in enumerate(numbers):
        sample = ds[at]
        np.testing.assert_array_equal(sample["image"], picture(number))
        assert sample["latent"].tobytes() == latent(number).tobytes()
        assert (sample["label"], sample["caption"]) == (number % 2, f"№ {number}")
        assert bytes(ds.read(at, "image")[0]) == png(number)
    assert len(ds) == len(numbers)


def test_a_saved_folder_is_detected(tmp_path):
    """Several files of several record batches, in order, without the library."""
    folder = save(tmp_path / "saved", table())
    headrace.build(folder, tmp_path / "out.hr", workers=2, format="keep")

    assert open_source(folder).kind == "huggingface"
    check(tmp_path / "out.hr")


def test_saved_splits_are_a_field(tmp_path):
    """A folder of a DatasetDict; one split can be chosen."""
    save(tmp_path / "saved/train", table(range(5)), 1)
    save(tmp_path / "saved/test", table(range(5, 8)), 1)
    (tmp_path / "saved/dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    headrace.build(tmp_path / "saved", tmp_path / "out.hr", workers=1, format="keep")
    headrace.build(tmp_path / "saved", tmp_path / "test.hr", workers=1, format="keep", split="test")

    check(tmp_path / "out.hr", range(8))
    assert [headrace.open(tmp_path / "out.hr")[row]["split"] for row in (4, 5)] == ["train", "test"]
    check(tmp_path / "test.hr", range(5, 8))
    with pytest.raises(BadSource, match="no split 'val'"):
        open_source(tmp_path / "saved", split="val")


def stand_in(rows):
    """An object that looks like the library's."""

    class Features:
        arrow_schema = rows.schema

    def with_format(self, name):
        assert name == "arrow"
        return self

    body = {
        "features": Features,
        "data": rows,
        "_fingerprint": "0123456789abcdef",
        "with_format": with_format,
        "__len__": lambda _: rows.num_rows,
        "__getitem__": lambda _, key: rows.slice(key.start, max(0, min(key.stop, rows.num_rows) - key.start)),
        "__module__": "datasets.arrow_dataset",
    }
    return type("Dataset", (), body)()


def test_an_object_is_read_as_arrow(tmp_path):
    """Its rows come in slices; a dict of them has splits."""
    splits = type("DatasetDict", (dict,), {"__module__": "datasets.dataset_dict"})
    both = splits(train=stand_in(table(range(17))), test=stand_in(table(range(17, 20))))
    headrace.build(stand_in(table()), tmp_path / "out.hr", workers=1, format="keep")
    headrace.build(both, tmp_path / "both.hr", workers=1, format="keep")

    check(tmp_path / "out.hr")
    check(tmp_path / "both.hr")
    assert open_source(both, split="test").kind == "huggingface"


def test_the_library_itself(tmp_path):
    """Objects with their features, selections and shuffles, and what `save_to_disk` writes."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=CLASSES),
            "latent": datasets.Array3D((2, 3, 4), "float16"),
            "caption": datasets.Value("string"),
        }
    )
    rows = {
        "image": [{"bytes": png(row), "path": None} for row in range(COUNT)],
        "label": [row % 2 for row in range(COUNT)],
        "latent": [latent(row) for row in range(COUNT)],
        "caption": [f"№ {row}" for row in range(COUNT)],
    }
    ds = datasets.Dataset.from_dict(rows, features=features)
    chosen = [3, 1, 19, 4]
    ds.save_to_disk(tmp_path / "saved")
    headrace.build(ds, tmp_path / "object.hr", workers=1, format="keep")
    headrace.build(ds.select(chosen), tmp_path / "chosen.hr", workers=1, format="keep")
    headrace.build(tmp_path / "saved", tmp_path / "saved.hr", workers=1, format="keep")

    check(tmp_path / "object.hr")
    check(tmp_path / "chosen.hr", chosen)
    check(tmp_path / "saved.hr")


def test_images_on_disk_are_read_for_objects_only(tmp_path):
    """The user's own object may name local files; a folder from elsewhere may not."""
    (tmp_path / "a.png").write_bytes(png(0))
    image = pa.array(
        [{"bytes": None, "path": str(tmp_path / "a.png")}], pa.struct({"bytes": pa.binary(), "path": pa.string()})
    )
    rows = pa.table({"image": image})
    headrace.build(stand_in(rows), tmp_path / "out.hr", workers=1, format="keep")

    np.testing.assert_array_equal(headrace.open(tmp_path / "out.hr")[0]["image"], picture(0))
    with pytest.raises(BuildError, match="paths are not read"):
        headrace.build(save(tmp_path / "saved", rows, 1), tmp_path / "saved.hr", workers=1)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ('{"_data_files": [{"filename": "../x.arrow"}]}', "relative"),
        ('{"_data_files": [{"filename": "/etc/passwd"}]}', "relative"),
        ('{"_data_files": [{"filename": 5}]}', "the name of each"),
        ('{"_data_files": []}', "at least one"),
        ('{"_data_files": [{"filename": "none.arrow"}]}', "none.arrow"),
        ("[]", "must be a JSON object"),
        ("[" * 100000, "must be JSON"),
    ],
)
def test_a_state_that_is_wrong_is_refused(tmp_path, state, message):
    """Nothing outside of the folder is opened."""
    folder = save(tmp_path / "saved", table(range(2)), 1)
    (folder / "state.json").write_text(state)

    with pytest.raises(BadSource, match=message):
        open_source(folder)


def test_damaged_arrow_files_raise(tmp_path):
    """Cuts and flipped bytes give rows or an error."""
    folder = save(tmp_path / "saved", table(range(4)).drop_columns(["latent"]), 1)
    [file] = folder.glob("*.arrow")
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    refused = 0
    for turn in range(60):
        data = bytearray(whole[: int(rng.integers(len(whole)))] if turn % 2 else whole)
        for at in rng.integers(0, len(data), 6) if data else ():
            data[at] = int(rng.integers(256))
        file.write_bytes(data)
        try:
            source = open_source(folder)
            for item in source.items():
                source.load(item)
        except BadSource:
            refused += 1
    assert refused > 10
