# SPDX-License-Identifier: Apache-2.0
"""Plans: what a loader asks of a dataset, and samples in two renditions, which are the same whichever is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.loader.datasets import COUNT, FIELDS, assert_equal, copied, make_sample
from typer.testing import CliRunner

import headrace
from headrace.cli import app
from headrace.errors import BuildError, CorruptImage, PlanMismatch
from headrace.loader import FormatStats, LoaderStats, limit_storage
from headrace.transforms import RandomResizedCrop

PAIRS = [("hri:dense", "raw"), ("png", "raw"), ("png", "webp"), ("raw", "hri:fast", "png")]


def make_plan(*formats: str, renditions: int = 1) -> dict[str, Any]:
    shares = [{"format": name, "share": 1 / len(formats), "decode": "cpu"} for name in formats]
    fields = {"image": {"renditions": renditions, "shares": shares}}
    return {"version": 1, "fields": fields, "calibration": {}, "predicted": {"rate": 1234.5}}


def smooth_sample(number: int) -> dict[str, Any]:
    """A sample that encoders make smaller, of more than one read."""
    rows, columns = np.mgrid[:224, :256]
    image = np.stack([rows + number, columns, rows + columns], axis=2).astype(np.uint8)
    return make_sample(number) | {"image": image, "mask": image[:, :, 0] // 32}


def write(path: Path, plan: dict[str, Any], count: int = COUNT) -> Path:
    with headrace.Writer(path, fields=FIELDS, plan=plan, workers=1, shard_samples=7) as writer:
        for number in range(count):
            writer.write(smooth_sample(number), key=f"sample/{number}")
    return path


def load(path: Path, epochs: int = 1, *, rate: float | None = None, **options: Any) -> tuple[list[Any], LoaderStats]:
    transform = [RandomResizedCrop(64)]
    given = {"batch_size": 8, "shuffle": True, "output": "numpy", "num_workers": 2, "transform": transform, **options}
    with headrace.Loader(path, **given) as loader:
        limit_storage(loader, rate)
        batches = [copied(batch) for _ in range(epochs) for batch in loader]
        return batches, loader.stats()


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The batches of two epochs from a dataset in one format."""
    path = write(tmp_path_factory.mktemp("single") / "raw.hr", make_plan("raw"))
    return load(path, 2)[0]


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("double") / "double.hr", make_plan("hri:dense", "raw", renditions=2))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Path]:
    """Datasets with a rendition of each image in each of the formats; a combination is written once."""

    @cache
    def written(formats: tuple[str, ...]) -> Path:
        plan = make_plan(*formats, renditions=len(formats))
        return write(tmp_path_factory.mktemp("several") / "several.hr", plan)

    return written


# Renditions.


@pytest.mark.parametrize("rate", [None, 4_000_000])
@pytest.mark.parametrize("formats", PAIRS, ids="+".join)
def test_renditions_change_no_bit(
    several: Callable[[tuple[str, ...]], Path], single: list[Any], formats: tuple[str, ...], rate: float
) -> None:
    batches, stats = load(several(formats), 2, rate=rate)
    assert_equal(batches, single)
    assert sum(stats.formats.get(name, FormatStats()).images for name in formats) >= 2 * COUNT
    assert stats.failed_renditions == 0


def test_slow_storage_makes_the_loader_read_what_is_small(double: Path) -> None:
    _, stats = load(double, 3, rate=1_000_000, fields=["image"])
    images = {name: figures.images for name, figures in stats.formats.items()}
    assert images["hri:dense"] > 2 * COUNT
    assert sum(images.values()) == 3 * COUNT


def test_a_state_goes_on_with_another_choice(double: Path, single: list[Any]) -> None:
    options: dict[str, Any] = {
        "batch_size": 8,
        "shuffle": True,
        "output": "numpy",
        "transform": [RandomResizedCrop(64)],
    }
    with headrace.Loader(double, **options) as first:
        batches = iter(first)
        begun = [copied(next(batches)) for _ in range(2)]
        state = json.loads(json.dumps(first.state_dict()))
        del batches
    with headrace.Loader(double, **options) as second:
        limit_storage(second, 3_000_000)
        second.load_state_dict(state)
        assert_equal(begun + [copied(batch) for batch in second], single[: len(single) // 2])


def _damage(path: Path, row: int, rendition: int) -> None:
    table = headrace.open(path).table
    part = {name: table.column(f"image.{rendition}.{name}")[row].as_py() for name in ("shard", "offset", "length")}
    shard = path / "shards" / f"{part['shard']:06d}.hrs"
    with shard.open("r+b") as file:
        file.seek(part["offset"])
        data = bytearray(file.read(part["length"]))
        data[64:] = bytes(len(data) - 64)
        file.seek(part["offset"])
        file.write(data)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("formats", PAIRS[:3], ids="+".join)
def test_a_damaged_rendition_is_made_up_for_by_another(
    several: Callable[[tuple[str, ...]], Path],
    tmp_path: Path,
    single: list[Any],
    formats: tuple[str, ...],
    workers: int,
) -> None:
    path = shutil.copytree(several(formats), tmp_path / "damaged.hr")
    for row in range(0, COUNT, 3):
        _damage(path, row, row % 2)
    batches, stats = load(path, 2, num_workers=workers)
    assert_equal(batches, single)
    assert stats.failed_renditions > 0


@pytest.mark.parametrize("formats", PAIRS[:3], ids="+".join)
def test_a_sample_fails_when_all_its_renditions_do(tmp_path: Path, formats: tuple[str, ...]) -> None:
    path = write(tmp_path / "damaged.hr", make_plan(*formats, renditions=2), count=8)
    for rendition in range(2):
        _damage(path, 5, rendition)
    with pytest.raises(CorruptImage, match=r"sample/5.*at offset \d+ of"):
        load(path)
    batches, stats = load(path, on_error="skip")
    assert len(batches[0]["label"]) == 7
    assert stats.error_count == 1


def test_a_dataset_of_two_renditions_is_one_like_any_other(double: Path, tmp_path: Path) -> None:
    dataset = headrace.open(double)
    assert dataset.formats["image"] == {"hri:dense": COUNT, "raw": COUNT}
    assert dataset.verify().ok
    np.testing.assert_array_equal(dataset[3]["image"], smooth_sample(3)["image"])
    stored = {name: bytes(dataset.read(3, "image", name)[0]) for name in ("hri:dense", "raw")}
    assert stored["hri:dense"] != stored["raw"]
    result = CliRunner().invoke(app, ["extract", str(double), str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert len([file for file in (tmp_path / "out").rglob("*") if file.is_file()]) >= COUNT


# Building.


def test_build_takes_the_number_of_renditions(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(4):
        Image.fromarray(smooth_sample(number)["image"]).save(tmp_path / "photos" / f"{number}.jpg")
    (tmp_path / "plan.json").write_text(json.dumps(make_plan("jpeg", "raw")))
    paths = [str(tmp_path / name) for name in ("photos", "two.hr", "plan.json")]
    result = CliRunner().invoke(app, ["build", *paths[:2], "--plan", paths[2], "--renditions", "2"])
    assert result.exit_code == 0, result.output
    dataset = headrace.open(tmp_path / "two.hr")
    assert dataset.formats["image"] == {"jpeg": 4, "raw": 4}
    assert dataset.verify().ok
    first, second = (list(dataset.table.column(f"image.{rendition}.format").to_pylist()) for rendition in range(2))
    assert all(one != other for one, other in zip(first, second, strict=True))
    with headrace.Loader(dataset, batch_size=4, output="numpy", layout="HWC") as loader:
        (batch,) = loader
    for row in range(4):
        file = (tmp_path / "photos" / dataset.key(row)).read_bytes()
        np.testing.assert_array_equal(batch["image"][row], headrace.formats.decode(file))


def test_renditions_need_a_plan_with_as_many_formats(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give a plan too"):
        headrace.Writer(tmp_path / "a.hr", fields=FIELDS, renditions=2)
    with pytest.raises(ValueError, match="1 to 2 renditions"):
        headrace.Writer(tmp_path / "b.hr", fields=FIELDS, plan=make_plan("raw", "png"), renditions=3)


@pytest.mark.parametrize("renditions", [1, 2])
def test_a_rendition_that_loses_pixels_is_refused(tmp_path: Path, renditions: int) -> None:
    with pytest.raises(BuildError, match="stores it as jpeg:90, which would change its pixels"):
        write(tmp_path / "lossy.hr", make_plan("jpeg:90", "raw", renditions=renditions), count=8)


# Loader(plan=…).


def test_a_loader_passes_on_what_its_plan_predicted(double: Path, tmp_path: Path) -> None:
    plan = make_plan("hri:dense", "raw", renditions=2)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    for given in (plan, tmp_path / "plan.json", str(tmp_path / "plan.json")):
        stats = load(double, plan=given, fields=["image"])[1]
        assert stats.plan == {"fields": plan["fields"], "predicted": {"rate": 1234.5}}
    assert load(double, fields=["image"])[1].plan is None


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (make_plan("hri:dense", "png"), r"50% of 'image' as png; .*double.hr has hri:dense, raw: build it again"),
        (make_plan("hri:dense", "raw", "png", renditions=3), "has 3 renditions of 'image' per sample; .* has 2"),
        ({"version": 1, "fields": {"depth": make_plan("raw")["fields"]["image"]}}, "field 'depth'; .* image, mask"),
    ],
)
def test_a_plan_of_another_dataset_is_refused(double: Path, plan: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanMismatch, match=message):
        headrace.Loader(double, plan=plan)


def test_a_dataset_of_other_formats_is_refused_however_small(tmp_path: Path) -> None:
    write(tmp_path / "few.hr", make_plan("hri:dense", "raw"), count=3)
    with pytest.raises(PlanMismatch, match=r"has 'image' as png, webp; .*few\.hr has "):
        headrace.Loader(tmp_path / "few.hr", plan=make_plan("webp", "png"))


def test_what_is_no_plan_is_refused(double: Path) -> None:
    with pytest.raises(ValueError, match="version"):
        headrace.Loader(double, plan={"version": 7})
