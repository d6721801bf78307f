# SPDX-License-Identifier: Apache-2.0
"""Merging datasets: every sample with its image, its values and the number of its class."""

from __future__ import annotations

import numpy as np
import pytest
from tests.building.growing.samples import FIELDS, check, make_sample, write
from tests.building.pictures import tree

import headrace
from headrace.errors import BuildError, CorruptDataset


def test_a_merge_has_all_samples(tmp_path):
    write(tmp_path / "a.hr", range(20))
    write(tmp_path / "b.hr", range(20, 33))
    report = headrace.merge([tmp_path / "a.hr", tmp_path / "b.hr"], tmp_path / "c.hr")

    check(headrace.open(tmp_path / "c.hr"), range(33))
    assert (report.samples, report.shards) == (33, 1)  # small shards are joined
    assert headrace.merge([tmp_path / "a.hr", tmp_path / "b.hr"], tmp_path / "c.hr").was_finished
    with pytest.raises(BuildError, match="finished dataset"):
        headrace.merge([tmp_path / "b.hr", tmp_path / "a.hr"], tmp_path / "c.hr")
    headrace.merge([tmp_path / "b.hr"], tmp_path / "c.hr", force=True)
    check(headrace.open(tmp_path / "c.hr"), range(20, 33))


def test_a_merge_of_a_plain_dataset_has_its_bytes(tmp_path, monkeypatch):
    """Shards of a source that nothing was dropped from are copied as they are."""
    monkeypatch.setattr("headrace.building.growing._merge.SHARD_BYTES", 1)
    write(tmp_path / "a.hr", range(20))
    headrace.merge(tmp_path / "a.hr", tmp_path / "b.hr")
    ours, theirs = tree(tmp_path / "a.hr"), tree(tmp_path / "b.hr")
    del ours["dataset.json"], theirs["dataset.json"]
    assert ours == theirs


def test_dropped_samples_are_not_copied(tmp_path):
    path = write(tmp_path / "a.hr", range(20))
    headrace.drop(path, slice(0, 9))
    headrace.merge([path, f"{path}@v1"], tmp_path / "b.hr")
    dataset = headrace.open(tmp_path / "b.hr")
    assert [dataset.key(index) for index in range(31)] == list(map(str, [*range(9, 20), *range(20)]))
    assert dataset.verify().ok
    headrace.merge(path, tmp_path / "c.hr")
    check(headrace.open(tmp_path / "c.hr"), range(9, 20))
    assert headrace.open(tmp_path / "c.hr").manifest.shards[0].n_bytes < sum(
        shard.n_bytes for shard in headrace.open(path).manifest.shards
    )


def test_labels_get_the_numbers_of_the_merged_classes(tmp_path):
    write(tmp_path / "a.hr", range(6), classes=("ant", "bee", "cow"))
    write(tmp_path / "b.hr", range(6, 12), classes=("cow", "dog", "ant"))
    headrace.merge([tmp_path / "a.hr", tmp_path / "b.hr"], tmp_path / "c.hr")
    dataset = headrace.open(tmp_path / "c.hr")
    assert dataset.classes == ["ant", "bee", "cow", "dog"]
    assert dataset.targets.tolist() == [0, 1, 2, 0, 1, 2, 2, 3, 0, 2, 3, 0]
    assert dataset[8]["boxes"].labels.tolist() == [2, 3]  # of number 8: cow, dog
    assert dataset[5]["boxes"].labels.tolist() == [0, 1]
    headrace.add(tmp_path / "c.hr", tmp_path / "a.hr", existing="skip")
    with pytest.raises(BuildError, match="matched by the names"):
        headrace.merge([tmp_path / "a.hr", write(tmp_path / "d.hr", [1], classes=None)], tmp_path / "e.hr")


def test_datasets_with_other_fields_are_refused(tmp_path):
    write(tmp_path / "a.hr", range(3))
    fields = {name: kind for name, kind in FIELDS.items() if name != "score"} | {"name": "bytes"}
    with headrace.Writer(tmp_path / "b.hr", fields=fields, workers=1) as writer:
        writer.write({**make_sample(1), "name": b""})
    with pytest.raises(
        BuildError, match=r"name \(str in .*a\.hr, bytes in .*b\.hr\); score \(float32 in .*, missing in"
    ):
        headrace.merge([tmp_path / "a.hr", tmp_path / "b.hr"], tmp_path / "c.hr")
    assert not (tmp_path / "c.hr").exists()
    with pytest.raises(BuildError, match="cannot be merged into itself"):
        headrace.merge([tmp_path / "a.hr"], tmp_path / "a.hr", force=True)
    with pytest.raises(ValueError, match="at least one"):
        headrace.merge([], tmp_path / "c.hr")


def test_damage_is_not_copied(tmp_path):
    path = write(tmp_path / "a.hr", range(10))
    shard = path / "shards/000001.hrs"
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    with pytest.raises(CorruptDataset, match=r"sample '7' at offset .* checksum; restore the file, or drop the sample"):
        headrace.merge(path, tmp_path / "b.hr")
    headrace.drop(path, "7")
    with pytest.raises(BuildError, match=r"unfinished build with other options.*resume=False"):
        headrace.merge(path, tmp_path / "b.hr")
    headrace.merge(path, tmp_path / "b.hr", resume=False)
    np.testing.assert_array_equal(headrace.open(tmp_path / "b.hr")[7]["image"], make_sample(8)["image"])
