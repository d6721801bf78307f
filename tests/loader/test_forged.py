# SPDX-License-Identifier: Apache-2.0
"""What a dataset claims and is not true: samples fail with an error, memory stays bounded, and every batch ends."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.loader.datasets import COUNT, labels

import headrace
from headrace.errors import CorruptDataset, CorruptImage, HeadraceError, ImageTooLarge, UnsupportedDataset
from headrace.formats import MAX_PIXELS
from headrace.records.schema import FORMAT_CODES
from headrace.transforms import CenterCrop, HorizontalFlip, RandomCrop, Resize, Views

DTYPES = {"height": "<u4", "width": "<u4", "channels": "u1", "dtype": "u1", "format": "u1"}
DTYPES |= {"shard": "<u4", "offset": "<u8", "length": "<u8"}


def load(path: Path, **options: Any) -> headrace.Loader:
    return headrace.Loader(path, **{"output": "numpy", "num_workers": 2, "fields": ["image", "label"], **options})


def forge(path: Path, rows: Any = slice(None), field: str = "image.0", **claims: Any) -> Path:
    """Write other numbers into columns of the index. Opening a dataset checks no sums, so there is nothing to mend."""
    content = pa.memory_map(str(path / "index.arrow")).read_buffer()
    [batch] = [pa.ipc.open_file(content).get_batch(0)]
    for part, value in claims.items():
        start = batch.column(f"{field}.{part}").buffers()[1].address - content.address
        column = np.memmap(path / "index.arrow", DTYPES[part], "r+", start, batch.num_rows)
        column[rows] = value
        column.flush()
    return path


@pytest.fixture
def forged(path: Path, tmp_path: Path) -> Path:
    return shutil.copytree(path, tmp_path / "forged.hr")


@pytest.fixture
def fast(tmp_path: Path) -> Path:
    """Samples of one shape in one format of the core: no thread decodes any other."""
    with headrace.Writer(tmp_path / "fast.hr", fields={"image": "image", "label": "int64"}, format="hri:fast") as out:
        for number in range(12):
            out.write({"image": np.full((20, 30, 3), number, np.uint8), "label": number})
    return tmp_path / "fast.hr"


@pytest.mark.parametrize("transform", [[HorizontalFlip()], [Views(2, [HorizontalFlip()])]], ids=["one", "views"])
def test_a_sample_that_cannot_be_rgb_fails_alone_in_a_ragged_batch(tmp_path: Path, transform: Any) -> None:
    channels = [3, 6, 1, 3, 64]
    with headrace.Writer(tmp_path / "bands.hr", fields={"image": "image", "label": "int64"}, format="raw") as out:
        for number, count in enumerate(channels):
            height = 2000 if count == 64 else 20 + number  # more than lies behind the batch's memory
            out.write({"image": np.full((height, 300, count), number, np.uint8), "label": number})
    options = {"batch_size": 5, "transform": transform}
    with load(tmp_path / "bands.hr", color="RGB", on_error="skip", **options) as loader:
        [batch] = list(loader)
        assert batch["label"].tolist() == [0, 2, 3]
        assert all((image == label).all() for image, label in zip(batch["image"], batch["label"], strict=True))
    with (
        load(tmp_path / "bands.hr", color="RGB", **options) as loader,
        pytest.raises(HeadraceError, match="four channe"),
    ):
        list(loader)
    with load(tmp_path / "bands.hr", **options) as loader:
        [batch] = list(loader)
        assert [image.shape[-3] for image in batch["image"]] == [3, 6, 3, 3, 64]


@pytest.mark.parametrize(
    "claims",
    [
        {"height": 2**24 - 1, "width": 2**24 - 1, "channels": 255},
        {"height": 65536},
        {"width": 2**32 - 1},
        {"width": 0},
        {"channels": 65},
        {"channels": 0},
    ],
)
def test_sizes_that_no_image_has_are_refused(forged: Path, claims: Any) -> None:
    forge(forged, slice(3, None), **claims)
    for transform in ([CenterCrop(16)], None):
        with load(forged, batch_size=8, transform=transform) as loader, pytest.raises(CorruptDataset, match="65535"):
            list(loader)
        with load(forged, batch_size=8, transform=transform, on_error="skip") as loader:
            assert labels(loader)[0] == [0, 1, 2]


def test_claims_within_the_limits_are_compared_with_the_file(forged: Path) -> None:
    forge(forged, 2, height=60, width=61, channels=64)
    with load(forged, batch_size=8) as loader, pytest.raises(CorruptImage, match="claims"):
        list(loader)


@pytest.mark.parametrize("code", [0, 3, 4, 5, 7, 9, 33, 65, 129, 255])
def test_a_format_that_dataset_json_does_not_list_fails_at_once(fast: Path, code: int) -> None:
    """Nobody decodes it; one flipped bit used to make the loader wait for ever."""
    forge(fast, 5, format=code)
    known = CorruptDataset if code in FORMAT_CODES.values() else UnsupportedDataset
    with load(fast, batch_size=4) as loader, pytest.raises(known, match=r"row 5.*format"):
        list(loader)
    with load(fast, batch_size=4, on_error="skip") as loader:
        assert labels(loader) == [[0, 1, 2, 3], [4, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("code", [0, 7, 255])
def test_a_dtype_that_is_not_known_fails(fast: Path, code: int) -> None:
    forge(fast, 5, dtype=code)
    with load(fast, batch_size=4) as loader, pytest.raises(UnsupportedDataset, match=r"row 5.*dtype"):
        list(loader)


def test_another_rendition_stands_in_for_one_of_an_unknown_format(tmp_path: Path) -> None:
    plan = {"version": 1, "fields": {"image": {"renditions": 2, "shares": []}}}
    plan["fields"]["image"]["shares"] = [{"format": name, "share": 0.5} for name in ("hri:fast", "raw")]  # type: ignore[index]
    with headrace.Writer(tmp_path / "two.hr", fields={"image": "image", "label": "int64"}, plan=plan) as out:
        for number in range(6):
            out.write({"image": np.full((20, 30, 3), number, np.uint8), "label": number})
    second = headrace.open(tmp_path / "two.hr").column("image.1.format")[2]
    for field, code in (("image.0", 3), ("image.1", 200)):
        forge(tmp_path / "two.hr", 2, field, format=code)
    with load(tmp_path / "two.hr", batch_size=6) as loader, pytest.raises(HeadraceError, match="row 2"):
        list(loader)
    forge(tmp_path / "two.hr", 2, "image.1", format=second)
    with load(tmp_path / "two.hr", batch_size=6) as loader:
        [batch] = list(loader)
        assert (batch["image"][2] == 2).all()


def test_max_pixels_holds_for_every_format(path: Path) -> None:
    ds = headrace.open(path)
    rows = {ds.read(row, "image")[1].format: row for row in range(COUNT)}
    assert rows.keys() == {"hri:fast", "hri:dense", "raw", "png", "webp"}
    for form, row in rows.items():
        stored = ds.read(row, "image")[1]
        enough = stored.height * stored.width
        with load(path, indices=[row], max_pixels=enough) as loader:
            assert len(list(loader)) == 1
        with load(path, indices=[row], max_pixels=enough - 1) as loader, pytest.raises(ImageTooLarge, match="max_pix"):
            list(loader)
        crop = {"indices": [row], "transform": [RandomCrop(8)], "max_pixels": 64}
        with load(path, **crop) as loader:
            if form in ("png", "webp"):
                with pytest.raises(ImageTooLarge):
                    list(loader)
            else:
                assert len(list(loader)) == 1


def test_jpegs_have_a_limit_too(tmp_path: Path) -> None:
    data = headrace.formats.get("jpeg").encode(np.zeros((30, 40, 3), np.uint8), mode="90")
    headrace.build([{"image": data, "label": 0}], tmp_path / "jpeg.hr", format="keep")
    with load(tmp_path / "jpeg.hr", max_pixels=1199) as loader, pytest.raises(ImageTooLarge, match="max_pixels"):
        list(loader)
    with load(tmp_path / "jpeg.hr", max_pixels=1200) as loader:
        assert len(list(loader)) == 1


def test_a_thin_image_does_not_grow_beyond_the_limit(tmp_path: Path) -> None:
    with headrace.Writer(tmp_path / "thin.hr", fields={"image": "image", "label": "int64"}, format="hri:fast") as out:
        out.write({"image": np.zeros((1, 60000), np.uint8), "label": 0})
    with load(tmp_path / "thin.hr", transform=[Resize(256)]) as loader, pytest.raises(ImageTooLarge):
        list(loader)


@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_max_pixels_is_a_positive_integer(path: Path, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="max_pixels"):
        load(path, max_pixels=value)


def test_claims_beyond_max_pixels_take_no_memory(fast: Path) -> None:
    forge(fast, height=65535, width=65535)
    assert MAX_PIXELS < 65535**2
    with load(fast, batch_size=12) as loader, pytest.raises(ImageTooLarge):
        list(loader)


def test_a_batch_that_memory_cannot_hold_fails_sample_by_sample(fast: Path) -> None:
    forge(fast, height=32000, width=32000, channels=64)
    with load(fast, batch_size=12, fields=["image"]) as loader:
        iter(loader)
        source = loader._parts.source
        batch = source.submit(np.arange(12), 0)
        while not batch.wait(1):
            pass
        kinds = [kind for _, _, _, kind, _ in batch.failures()]
        fit = source.max_batch_bytes // (32000 * 32000 * 64)
        assert kinds == ["CorruptImage"] * min(fit, 12) + ["ImageTooLarge"] * (12 - min(fit, 12))


def test_extents_beyond_the_shard_are_refused(forged: Path) -> None:
    for claims in ({"offset": 2**63}, {"length": 2**64 - 1}, {"offset": 2**64 - 64, "length": 128}, {"shard": 2**31}):
        copy = shutil.copytree(forged, forged.with_suffix(".copy"))
        forge(copy, 1, **claims)
        with load(copy, batch_size=8) as loader, pytest.raises(HeadraceError, match="the index names"):
            list(loader)
        shutil.rmtree(copy)


def test_a_pipe_in_the_place_of_a_shard_is_not_waited_for(forged: Path) -> None:
    shard = forged / "shards/000000.hrs"
    shard.unlink()
    os.mkfifo(shard)
    with load(forged, batch_size=8) as loader, pytest.raises(CorruptDataset, match="not a regular file"):
        list(loader)


def check_all(batches: Any) -> None:
    for batch in batches:
        assert all(int(image[0, 0, 0]) == label for image, label in zip(batch["image"], batch["label"], strict=True))


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("raw", {}),
        ("png", {}),
        ("hri:fast", {}),
        ("hri:fast", {"output": "torch", "device": "cpu", "decode": "device"}),
    ],
    ids=["raw", "png", "hri", "device"],
)
def test_a_dataset_that_is_rebuilt_gives_no_other_images_under_old_labels(
    tmp_path: Path, form: str, options: Any
) -> None:
    path = tmp_path / "set.hr"

    def build(first: int) -> None:
        fields = {"image": "image", "label": "int64"}
        with headrace.Writer(path, fields=fields, format=form, shard_samples=4, force=True, workers=1) as out:
            for number in range(first, first + 16):
                out.write({"image": np.full((9, 9, 3), number, np.uint8), "label": number})

    build(0)
    ds = headrace.open(path)
    with load(ds, **{"batch_size": 4, "batches_ahead": 1, "num_workers": 1, **options}) as loader:
        batches = iter(loader)
        check_all([next(batches)])
        build(100)
        with pytest.raises(CorruptDataset, match="rebuilt"):
            check_all(batches)
    with pytest.raises(CorruptDataset, match="rebuilt"):
        ds[15]
    assert headrace.open(path)[15]["image"].max() == 115


def test_a_dataset_may_be_copied_over_itself(forged: Path) -> None:
    """Files of the same contents are the same dataset."""
    with load(forged, batch_size=8, batches_ahead=1) as loader:
        batches = iter(loader)
        next(batches)
        shutil.copytree(forged, forged.with_suffix(".twin"))
        forged.rename(forged.with_suffix(".old"))
        forged.with_suffix(".twin").rename(forged)
        assert len(list(batches)) == COUNT // 8 - 1
