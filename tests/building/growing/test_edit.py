# SPDX-License-Identifier: Apache-2.0
"""Dropping and relabeling samples, the log, and garbage."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.building.growing.samples import check, write
from tests.building.growing.test_add import more
from tests.building.pictures import tree

import headrace
from headrace.errors import BuildError, CorruptDataset
from headrace.records.index.changes import ChangedValues, DroppedRows, change_schema
from headrace.records.index.writing import write_table_file


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "a.hr", range(20))


@pytest.mark.parametrize(
    ("which", "gone"),
    [
        ("7", [7]),
        (["0", "19"], [0, 19]),
        ([0, -1], [0, 19]),
        (slice(3, 9), range(3, 9)),
        (np.arange(20) % 2 == 0, range(0, 20, 2)),
    ],
)
def test_dropped_samples_are_gone_from_the_new_version_only(path, which, gone):
    report = headrace.drop(path, which)
    assert (report.version, report.changed) == (2, len(gone))
    check(headrace.open(path), [number for number in range(20) if number not in gone])
    check(headrace.open(f"{path}@v1"), range(20))


def test_a_view_of_the_newest_version_can_be_dropped(path):
    old = headrace.open(path)
    headrace.drop(path, old.select(old.targets == 1))
    numbers = [number for number in range(20) if number % 3 != 1]
    check(headrace.open(path), numbers)
    with pytest.raises(BuildError, match=r"must be a view .* of the newest version, 2"):
        headrace.drop(path, old.select([0]))
    headrace.drop(path, [1])  # a sample of the newest version
    check(headrace.open(path), [numbers[0], *numbers[2:]])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 60), st.data())
def test_sample_numbers_and_rows_agree(n, data):
    gone = sorted(data.draw(st.sets(st.integers(0, n - 1))))
    left = np.delete(np.arange(n), gone)
    dropped = DroppedRows(np.array(gone, np.int64))
    assert dropped.stored(np.arange(len(left))).tolist() == left.tolist()
    assert [dropped.stored_one(sample) for sample in range(len(left))] == left.tolist()
    assert [dropped.sample(row) for row in left.tolist()] == list(range(len(left)))
    assert all(dropped.sample(row) is None for row in gone)
    changed = ChangedValues(np.array(gone, np.int64), np.array(gone, np.int64) + 1000)
    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=20))
    values = np.array(rows, np.int64)
    if gone:
        changed.put(np.array(rows, np.int64), values)
    assert values.tolist() == [row + 1000 * (row in gone) for row in rows]


def test_relabeled_samples_have_their_new_values_in_every_way_of_reading(path):
    headrace.relabel(path, ["4", "5"], "cow")
    headrace.relabel(path, {"5": "ant", "6": 1, "7": "dog"}, new_classes=True)
    headrace.drop(path, ["0", "6"])
    headrace.relabel(path, slice(0, 2), ["one", "two"], field="name")
    headrace.relabel(path, [0], 0.25, field="score")
    dataset = headrace.open(path)
    expected = {number: number % 3 for number in range(20)} | {4: 2, 5: 0, 7: 3}
    numbers = [number for number in range(20) if number not in (0, 6)]
    labels = [expected[number] for number in numbers]
    assert dataset.classes == ["ant", "bee", "cow", "dog"]
    assert [dataset[index]["label"] for index in range(18)] == labels
    assert [dataset.value(index, "label") for index in range(18)] == labels
    assert dataset.targets.tolist() == dataset.table.column("label").to_pylist() == labels
    assert dataset.table.column("name").to_pylist()[:3] == ["one", "two", "№ 3"]
    assert dataset.value(0, "score") == 0.25
    with headrace.Loader(path, batch_size=18, output="numpy", fields=["label", "name", "score"]) as loader:
        batch = next(iter(loader))
    assert batch["label"].tolist() == labels
    assert batch["name"][:3] == ["one", "two", "№ 3"]
    assert batch["score"].tolist()[:2] == [0.25, 1.0]
    assert dataset.verify().ok
    check(headrace.open(f"{path}@v1"), range(20))
    headrace.merge(path, path.with_name("m.hr"))
    assert headrace.open(path.with_name("m.hr")).targets.tolist() == labels


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["1", "no", "nor"], 1), {}, "2 of 3 keys are not in the dataset: 'no', 'nor'; nothing was changed"),
        (("1", "dog"), {}, "'dog' must be one of the classes ant, bee, cow"),
        (("1", 3), {}, r"must be in \[0, 3\)"),
        (("1", 1.5), {}, "must be int64; got 1.5"),
        (("1", None), {}, "must be int64; got None"),
        (("1", 1), {"field": "name"}, "must be str; got 1"),
        (("1", 1), {"field": "boxes"}, "must be one of the types int64, float32, str"),
        (([1, 2], [1]), {}, "one value for each of 2"),
        (([1, 1], [1, 2]), {}, "one value for each of 2 different"),
        ((["1", "2"], [1]), {}, "one value for each of the 2 keys"),
        (([], 1), {}, "at least one sample"),
        (([99], 1), {}, "must be in"),
    ],
)
def test_changes_that_do_not_fit_are_refused(path, arguments, options, message):
    before = tree(path)
    with pytest.raises((BuildError, ValueError, IndexError), match=message):
        headrace.relabel(path, *arguments, **options)
    assert tree(path) == before


def test_the_last_samples_cannot_be_dropped(path):
    with pytest.raises(BuildError, match="all 20 samples"):
        headrace.drop(path, slice(None))


def test_damaged_changes_are_errors(path):
    headrace.drop(path, "3")
    headrace.relabel(path, "4", 0)
    for number in (2, 3):
        name = path / f"changes/{number:06d}.arrow"
        content = name.read_bytes()
        for at in range(0, len(content), 7):
            name.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            assert not headrace.open(path).verify().ok
            with pytest.raises(CorruptDataset):
                _ = headrace.open(path)[0]
        name.write_bytes(content)
    assert headrace.open(path).verify().ok


@pytest.mark.parametrize("rows", [[0, -(1 << 63)], [5, 4], [5, 5], [-1, 3], [3, 20], [3, (1 << 63) - 1, -5]])
def test_rows_that_do_not_ascend_or_exist_are_refused(path, rows):
    """Differences of 64-bit numbers wrap, so rows are compared one by one."""
    headrace.relabel(path, list(range(len(rows))), 1)
    name = path / "changes/000002.arrow"
    table = pa.table([pa.array(rows, pa.int64()), pa.array([1] * len(rows), pa.int64())], schema=change_schema_of(path))
    forged = write_table_file(name, table.schema, [table])
    manifest = headrace.open(path).manifest
    forged = replace(manifest, relabeled={"label": replace(forged, number=2)})
    (path / manifest.file).write_bytes(forged.to_bytes())
    with pytest.raises(CorruptDataset, match="ascend strictly and be less than 20"):
        _ = headrace.open(path).targets
    assert "ascend strictly" in str(headrace.open(path).verify().problems[0])


def change_schema_of(path):
    field = next(field for field in headrace.open(path).manifest.fields if field.name == "label")
    return change_schema(field)


def test_the_log_lists_all_versions(path):
    headrace.add(path, more([20]), workers=1)
    headrace.drop(path, "3")
    headrace.relabel(path, "4", 0)
    entries = headrace.log(path)
    assert [(entry.version, entry.action, entry.changed, entry.samples) for entry in entries] == [
        (1, "build", 20, 20),
        (2, "add", 1, 21),
        (3, "drop", 1, 20),
        (4, "relabel", 1, 20),
    ]
    assert [entry.fingerprint for entry in entries] == [headrace.open(entry.address).fingerprint for entry in entries]
    assert len(headrace.log(f"{path}@v2")) == 2


def test_garbage_is_what_no_kept_version_needs(path):
    """Every kept version is intact after each collection, and the newest is never removed."""
    headrace.add(path, more(range(20, 30)), workers=1)
    headrace.drop(path, slice(0, 9))  # all of the first shard, some of the second
    headrace.relabel(path, ["15"], 1)
    kept = [number for number in range(30) if number >= 9]
    before = tree(path)
    assert headrace.collect_garbage(path).files == ()
    shown = headrace.collect_garbage(path, keep=[2], dry_run=True)
    assert tree(path) == before
    done = headrace.collect_garbage(path, keep=[2])
    assert (done.files, done.versions, done.kept) == (shown.files, (1, 3), (2, 4))
    assert done.files == ("dataset.json", "versions/000003.json")
    check(headrace.open(f"{path}@v2"), range(30))
    done = headrace.collect_garbage(path, keep=[])
    assert done.files == ("versions/000002.json", "shards/000000.hrs")
    dataset = headrace.open(path)
    assert dataset.verify().ok
    assert [dataset.key(index) for index in range(len(dataset))] == list(map(str, kept))
    assert headrace.sources.is_dataset(path)
    with pytest.raises(BuildError, match="finished dataset"), headrace.Writer(path, fields={"x": "str"}):
        pass
    headrace.add(path, more(range(30, 40)), workers=1)
    assert len(headrace.open(path)) == 31
    with pytest.raises(BuildError, match="has no version 1; it has 4, 5"):
        headrace.collect_garbage(path, keep=[1])


def test_two_writers_at_a_time_are_refused(path, monkeypatch):
    """The second one names the first, and changes nothing."""
    real = os.fsync
    refused = []

    def fsync(handle):
        if not refused:
            refused.append("")
            for change in (lambda: headrace.drop(path, "1"), lambda: headrace.collect_garbage(path)):
                with pytest.raises(BuildError, match="is being built by process"):
                    change()
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    headrace.add(path, more([20]), workers=1)
    assert refused
    check(headrace.open(path), range(21))
