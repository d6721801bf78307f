# SPDX-License-Identifier: Apache-2.0
"""Tensors from `.npy` files, iterables, Parquet and WebDataset, with every bit."""

from __future__ import annotations

import io
import json
import re
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace
from headrace.errors import BadSource, BuildError
from headrace.sources import IterableSource, NpySource, open_source


def latent(number: int, dtype: str = "float16") -> np.ndarray:
    return np.random.default_rng(number).standard_normal((4, 6, 5)).astype(dtype)


def write_npy(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


def test_a_folder_of_arrays_is_detected(tmp_path):
    """Float arrays become tensors, also with classes, and every bit survives a build."""
    for number, name in enumerate(("cat/a", "cat/b", "dog/a")):
        write_npy(tmp_path / f"latents/{name}.npy", latent(number))
    source = open_source(tmp_path / "latents")
    headrace.build(tmp_path / "latents", tmp_path / "out.hr", workers=1)
    ds = headrace.open(tmp_path / "out.hr")

    assert (source.kind, source.fields) == ("npy", {"tensor": "tensor<float16,[4,6,5]>", "label": "int64"})
    assert ds.classes == ["cat", "dog"]
    assert [ds[row]["label"] for row in range(3)] == [0, 0, 1]
    assert all(ds[row]["tensor"].tobytes() == latent(row).tobytes() for row in range(3))
    assert ds.value(2, "tensor").shape == (4, 6, 5)


def test_arrays_that_are_images_stay_images(tmp_path):
    """uint8, uint16 and int16 of two or three dimensions are read as images."""
    write_npy(tmp_path / "a.npy", np.zeros((5, 6, 7), np.uint16))

    assert open_source(tmp_path).kind == "folder"
    assert open_source(tmp_path, "npy").fields == {"tensor": "tensor<uint16,[5,6,7]>"}


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (latent(1, "float32"), "must be float16"),
        (latent(1)[:3], "must be float16"),
        (np.array([{}], object), "object|NumPy cannot read"),
        (np.zeros(0, np.float16), "got"),
    ],
)
def test_an_array_of_another_kind_fails_its_sample(tmp_path, array, message):
    """The first file sets dtype and shape; the error names the file that differs."""
    write_npy(tmp_path / "in/a.npy", latent(0))
    np.save(tmp_path / "in/b.npy", array, allow_pickle=True)

    with pytest.raises(BuildError, match=r"b\.npy") as caught:
        headrace.build(tmp_path / "in", tmp_path / "out.hr", workers=1)
    assert re.search(message, str(caught.value))


def test_a_header_that_lies_is_refused(tmp_path):
    """A header that claims terabytes allocates nothing."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f2", "fortran_order": False, "shape": (1 << 40,)})
    (tmp_path / "a.npy").write_bytes(buffer.getvalue())

    with pytest.raises(BadSource, match="announces"):
        NpySource(tmp_path)


def test_an_iterable_yields_tensors(tmp_path):
    """Arrays that are not images are tensors of their dtype and shape; a vector needs its type."""
    samples = [
        {"image": np.full((8, 8, 3), n, np.uint8), "latent": latent(n), "depth": latent(n, "float32")[0], "text": "a"}
        for n in range(3)
    ]
    fields = IterableSource(samples).fields
    embedded = [{"vector": np.arange(4, dtype=np.float64) + n} for n in range(2)]
    headrace.build(
        IterableSource(embedded, fields={"vector": "tensor<float64,[4]>"}), tmp_path / "vectors.hr", workers=1
    )

    assert fields == {
        "image": "image",
        "latent": "tensor<float16,[4,6,5]>",
        "depth": "tensor<float32,[6,5]>",
        "text": "str",
    }
    assert headrace.open(tmp_path / "vectors.hr")[1]["vector"].tolist() == [1, 2, 3, 4]
    assert IterableSource([{"scores": np.zeros(4, np.float32)}]).fields == {"scores": "list<float32>"}
    assert IterableSource([{"clip": np.zeros((2, 3, 4, 5), np.uint8)}]).fields == {"clip": "tensor<uint8,[2,3,4,5]>"}


def test_a_float_image_is_not_taken_for_a_tensor():
    """An image of floats raises, with both ways to store it."""
    with pytest.raises(BadSource, match=r"scale and round.*tensor<float32,\[8,8,3\]>"):
        IterableSource([{"image": np.zeros((8, 8, 3), np.float32)}])


def test_torch_tensors_are_stored(tmp_path):
    """Tensors of PyTorch in an iterable, bfloat16 too."""
    torch = pytest.importorskip("torch")
    values = [torch.randn(2, 3, 4).to(torch.bfloat16) for _ in range(2)]
    headrace.build([{"latent": value} for value in values], tmp_path / "out.hr", workers=1)

    ds = headrace.open(tmp_path / "out.hr")
    assert ds.fields == {"latent": "tensor<bfloat16,[2,3,4]>"}
    assert bytes(ds.tensor(1, "latent").data) == values[1].view(torch.uint8).numpy().tobytes()


def test_parquet_lists_of_a_fixed_size_are_tensors(tmp_path):
    """Also nested ones, and Hugging Face's Array3D, with the dtype of the column."""
    n, vectors = 3, np.random.default_rng(0).random((3, 5))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 5)
    nested = pa.array([[[1.5, 2], [3, 4]]] * n, pa.list_(pa.list_(pa.float32(), 2), 2))
    arrays = pa.array([latent(row, "float32").tolist() for row in range(n)], pa.list_(pa.list_(pa.list_(pa.float32()))))
    feature = {"latent": {"_type": "Array3D", "shape": [4, 6, 5], "dtype": "float32"}}
    metadata = {"huggingface": json.dumps({"info": {"features": feature}})}
    table = pa.table({"vector": fixed, "nested": nested, "latent": arrays, "id": pa.array(range(n))})
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    headrace.build(tmp_path / "a.parquet", tmp_path / "out.hr", workers=1)

    ds = headrace.open(tmp_path / "out.hr")
    assert dict(ds.fields) == {
        "vector": "tensor<float64,[5]>",
        "nested": "tensor<float32,[2,2]>",
        "latent": "tensor<float32,[4,6,5]>",
        "id": "int64",
    }
    assert all(ds[row]["vector"].tobytes() == vectors[row].tobytes() for row in range(n))
    assert all(ds[row]["latent"].tobytes() == latent(row, "float32").tobytes() for row in range(n))


def test_webdataset_arrays_are_tensors(tmp_path):
    """An `.npy` file beside an image is a tensor; a sample whose array differs fails."""

    def tar(name, arrays):
        with tarfile.open(tmp_path / name, "w") as archive:
            for number, array in enumerate(arrays):
                buffer = io.BytesIO()
                np.save(buffer, array)
                info = tarfile.TarInfo(f"{number:04d}.latent.npy")
                info.size = buffer.tell()
                archive.addfile(info, io.BytesIO(buffer.getvalue()))
        return tmp_path / name

    headrace.build(tar("a.tar", [latent(0), latent(1)]), tmp_path / "out.hr", workers=1)
    ds = headrace.open(tmp_path / "out.hr")

    assert dict(ds.fields) == {"latent_npy": "tensor<float16,[4,6,5]>"}
    assert ds[1]["latent_npy"].tobytes() == latent(1).tobytes()
    with pytest.raises(BuildError, match="0001"):
        headrace.build(tar("b.tar", [latent(0), latent(1)[1:]]), tmp_path / "bad.hr", workers=1)
