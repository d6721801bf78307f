# SPDX-License-Identifier: Apache-2.0
"""Adding samples: what versions contain, what is written, and what is refused."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
from tests.building.growing.samples import FIELDS, check, make_sample, write
from tests.building.pictures import make_folder, make_image, tree

import headrace
from headrace.building.growing import _publish
from headrace.errors import BuildError, CorruptDataset, InvalidState
from headrace.records import Manifest
from headrace.sources import IterableSource


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "a.hr", range(20))


def more(numbers):
    """Samples as a source, with their number as key."""
    return IterableSource([{**make_sample(number), "__key__": str(number)} for number in numbers], fields=FIELDS)


def test_a_version_has_the_old_and_the_new_samples(path):
    """Every version stays what it was, byte for byte."""
    before = tree(path)
    report = headrace.add(path, more(range(20, 31)), workers=1)

    assert (report.version, report.changed, report.samples, report.address) == (2, 11, 31, f"{path}@v2")
    check(headrace.open(path), range(31))
    check(headrace.open(f"{path}@v1"), range(20))
    headrace.add(path, more(range(31, 33)), workers=1)
    check(headrace.open(path), range(33))
    check(headrace.open(f"{path}@v2"), range(31))
    after = tree(path)
    assert {name: after[name] for name in before} == before
    assert sorted(after.keys() - before.keys()) == [
        "index/000002.arrow",
        "index/000003.arrow",
        "shards/000003.hrs",
        "shards/000004.hrs",
        "versions/000002.json",
        "versions/000003.json",
    ]


def test_bytes_depend_on_source_and_options_only(path, tmp_path):
    other = shutil.copytree(path, tmp_path / "b.hr")
    for each, workers in ((path, 1), (other, 2)):
        headrace.add(each, more(range(20, 40)), workers=workers)
    assert tree(path) == tree(other)


def test_a_reader_is_not_affected(path):
    """An open dataset, its pickle and a loader keep their version while others are written."""
    dataset = headrace.open(path)
    _ = dataset[0]
    copy = pickle.dumps(dataset)
    with headrace.Loader(path, batch_size=4, shuffle=True, output="numpy", fields=["image", "label"]) as loader:
        batches = iter(loader)
        seen = len(next(batches)["label"])
        headrace.add(path, more(range(20, 31)), workers=1)
        headrace.drop(path, ["3"])
        seen += sum(len(batch["label"]) for batch in batches)
    assert seen == 20
    check(dataset, range(20))
    check(pickle.loads(copy), range(20))


def test_loader_views_splits_and_sources_work_on_a_version(path, tmp_path):
    headrace.add(path, more(range(20, 31)), workers=1)
    headrace.drop(path, ["0", "25"])
    numbers = [number for number in range(31) if number not in (0, 25)]
    dataset = headrace.open(path)
    with headrace.Loader(path, batch_size=4, shuffle=True, output="numpy", fields=["score"]) as loader:
        assert sorted(score for batch in loader for score in batch["score"].tolist()) == [n / 2 for n in numbers]
    check(dataset.select(slice(3, 27)), numbers[3:27])
    parts = dataset.split([0.5, 0.5])
    assert sorted(part.key(index) for part in parts for index in range(len(part))) == sorted(map(str, numbers))
    headrace.build(path, tmp_path / "again.hr", workers=1)
    check(headrace.open(tmp_path / "again.hr"), numbers)
    headrace.build(f"{path}@v1", tmp_path / "first.hr", workers=1)
    check(headrace.open(tmp_path / "first.hr"), range(20))


def test_a_resumed_run_names_the_version_that_it_needs(path):
    with headrace.Loader(path, batch_size=4, shuffle=True, output="numpy", fields=["score"]) as loader:
        batches = iter(loader)
        first = [next(batches)["score"].tolist() for _ in range(2)]
        state = loader.state_dict()
        rest = [batch["score"].tolist() for batch in batches]
    assert first
    headrace.add(path, more(range(20, 31)), workers=1)
    options = {"batch_size": 4, "shuffle": True, "output": "numpy", "fields": ["score"]}
    with (
        headrace.Loader(path, **options) as loader,
        pytest.raises(InvalidState, match=r"version 1 of .*make it with '.*a\.hr@v1' to continue"),
    ):
        loader.load_state_dict(state)
    with headrace.Loader(f"{path}@v1", **options) as loader:
        loader.load_state_dict(state)
        assert [batch["score"].tolist() for batch in loader] == rest


def test_labels_are_matched_by_the_names_of_the_classes(tmp_path):
    """The numbers of the source differ from those of the dataset; new classes are appended."""
    headrace.build(make_folder(tmp_path / "one", 12), tmp_path / "a.hr", workers=1)
    source = make_folder(tmp_path / "two", 12)
    (source / "ant").rename(source / "zebra")
    headrace.add(tmp_path / "a.hr", source, workers=1, existing="skip")

    dataset = headrace.open(tmp_path / "a.hr")
    assert dataset.classes == ["ant", "bee", "cow", "zebra"]
    for index in range(len(dataset)):
        assert dataset.classes[dataset.value(index, "label")] == dataset.key(index).split("/")[0]
    assert len(dataset) == 16  # the others are there already
    assert headrace.open(f"{tmp_path / 'a.hr'}@v1").classes == ["ant", "bee", "cow"]


def test_what_exists_is_refused_or_skipped(tmp_path):
    source = make_folder(tmp_path / "photos", 6)
    path = tmp_path / "a.hr"
    headrace.build(source, path, workers=1)
    make_folder(source, 8)
    with pytest.raises(BuildError, match=r"has 6 of 8 samples of the source already: 'ant/0000.png'.*--existing skip"):
        headrace.add(path, source, workers=1)
    assert headrace.open(path).version == 1
    assert headrace.add(path, source, workers=1, existing="skip").changed == 2
    again = headrace.add(path, source, workers=1, existing="skip")
    assert (again.was_finished, again.version, again.changed) == (True, 2, 0)
    for index in range(8):
        np.testing.assert_array_equal(
            headrace.open(path)[index]["image"], make_image(int(headrace.open(path).key(index)[-8:-4]))
        )
    with pytest.raises(BuildError, match="has a sample of the source already"):
        headrace.add(path, more_images("cow/0007.png", "bee/0007.png", "bee/0001.png"), workers=1)
    headrace.drop(path, "bee/0001.png")
    headrace.add(path, more_images("bee/0001.png"), workers=1, resume=False)


def more_images(*keys):
    return [{"image": make_image(1), "label": 0, "__key__": key} for key in keys]


def test_an_addition_without_a_good_sample_is_refused(path):
    bad = [{**make_sample(1), "image": b"not an image", "__key__": "bad"}]
    with pytest.raises(BuildError, match="none of the samples could be stored"):
        headrace.add(path, IterableSource(bad, fields=FIELDS), workers=1, on_error="skip")
    with pytest.raises(BuildError, match="sample 'bad': field 'image'"):
        headrace.add(path, IterableSource(bad, fields=FIELDS), workers=1)
    with pytest.raises(TypeError, match="progress must be a function"):
        headrace.add(path, more([20]), progress=3)
    mixed = [*bad, {**make_sample(20), "__key__": "20"}]
    report = headrace.add(path, IterableSource(mixed, fields=FIELDS), workers=1, on_error="skip", resume=False)
    assert report.changed == 1
    assert headrace.open(path).manifest.skipped_count == 1
    check(headrace.open(path), range(21))


def test_keys_of_iterables_continue(path):
    headrace.add(path, [make_sample(number) for number in (5, 6)], workers=1)
    headrace.add(path, [make_sample(number) for number in (7,)], workers=1)
    dataset = headrace.open(path)
    assert [dataset.key(index) for index in (20, 21, 22)] == ["000000020", "000000021", "000000022"]


def test_other_fields_are_refused(path, tmp_path):
    with pytest.raises(BuildError, match=r"these differ: label \(here int64, there missing\)"):
        headrace.add(path, make_folder(tmp_path / "flat", 3) / "ant")
    with pytest.raises(BuildError, match="matched by the names of the classes: the dataset has names"):
        headrace.add(path, write(tmp_path / "b.hr", range(3), classes=None))
    with pytest.raises(BuildError, match="only the newest version"):
        headrace.add(f"{path}@v1", more([50]))
    with pytest.raises(FileNotFoundError, match="there is no dataset"):
        headrace.add(tmp_path / "none.hr", more([50]))
    assert not (path / ".building").exists()


def test_formats_of_the_dataset_are_kept(tmp_path):
    headrace.build([{"image": make_image(n)} for n in range(3)], tmp_path / "a.hr", workers=1, format="png", align=128)
    headrace.add(tmp_path / "a.hr", [{"image": make_image(n)} for n in range(3, 6)], workers=1)
    assert headrace.open(tmp_path / "a.hr").formats == {"image": {"png": 6}}
    headrace.add(tmp_path / "a.hr", [{"image": make_image(9)}], workers=1, format="hri:fast")
    dataset = headrace.open(tmp_path / "a.hr")
    assert dataset.formats == {"image": {"png": 6, "hri:fast": 1}}
    assert dataset.verify().ok
    assert dataset.manifest.align == 128


def test_the_last_index_files_are_joined_when_there_are_too_many(tmp_path, monkeypatch):
    """The large first one stays, and so does every version."""
    monkeypatch.setattr(_publish, "MAX_INDEX_FILES", 5)
    write(tmp_path / "a.hr", range(30))
    counts = []
    for number in range(30, 38):
        headrace.add(tmp_path / "a.hr", more([number]), workers=1)
        counts.append(len(headrace.open(tmp_path / "a.hr").manifest.indexes))
    assert counts == [2, 3, 4, 5, 2, 3, 4, 5]
    headrace.drop(tmp_path / "a.hr", ["31", "36"])
    headrace.add(tmp_path / "a.hr", more([38]), workers=1)
    dataset = headrace.open(tmp_path / "a.hr")
    assert (dataset.manifest.index.number, len(dataset.manifest.indexes)) == (0, 2)
    check(dataset, [number for number in range(39) if number not in (31, 36)])
    for version in range(1, 9):
        check(headrace.open(f"{tmp_path / 'a.hr'}@v{version}"), range(29 + version))


def test_rows_are_joined_a_few_times_only():
    """After many additions of one row: at most 64 files, and less than 30 rows copied for each that was added."""
    files, copied, n = [10**6], 0, 50_000
    for _ in range(n):
        kept = _publish.files_to_keep(files, 1)
        copied += sum(files[kept:])
        files = [*files[:kept], sum(files[kept:]) + 1]
        assert len(files) <= 64
    assert files[0] == 10**6
    assert copied < 30 * n


def test_a_missing_version_is_an_error_that_lists_them(path):
    headrace.add(path, more([20]), workers=1)
    with pytest.raises(FileNotFoundError, match=r"no .*a\.hr@v7; the dataset has the versions 1, 2"):
        headrace.open(f"{path}@v7")
    (path / "versions/000003.json").write_bytes((path / "versions/000002.json").read_bytes())
    with pytest.raises(CorruptDataset, match="must be version 3; it is 2"):
        headrace.open(path)
    assert [entry.problem != "" for entry in headrace.log(path)] == [False, False, True]
    check(headrace.open(f"{path}@v2"), range(21))


def test_a_folder_whose_name_looks_like_a_version_is_opened(tmp_path):
    write(tmp_path / "a@v2", range(3))
    check(headrace.open(tmp_path / "a@v2"), range(3))
    headrace.add(tmp_path / "a@v2", more([3]), workers=1)
    check(headrace.open(f"{tmp_path / 'a@v2'}@v1"), range(3))


def test_a_build_does_not_touch_a_dataset_that_has_grown(tmp_path):
    source = make_folder(tmp_path / "photos", 6)
    headrace.build(source, tmp_path / "a.hr", workers=1)
    make_folder(source, 8)
    headrace.add(tmp_path / "a.hr", source, workers=1, existing="skip")
    before = tree(tmp_path / "a.hr")
    with pytest.raises(BuildError, match="finished dataset"):
        headrace.build(source, tmp_path / "a.hr", workers=1, resume=False)
    with pytest.raises(BuildError, match="finished dataset"), headrace.Writer(tmp_path / "a.hr", fields={"x": "str"}):
        pass
    assert tree(tmp_path / "a.hr") == before
    headrace.build(source, tmp_path / "a.hr", workers=1, force=True)
    assert Manifest.load(tmp_path / "a.hr").number == 1
    assert not (tmp_path / "a.hr" / "versions").exists()
