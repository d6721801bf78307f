# SPDX-License-Identifier: Apache-2.0
"""`headrace.plan`: measures what is not known, and plans with what is."""

from __future__ import annotations

import json

import pytest
from tests.planning.pictures import make_folder

import headrace
from headrace import errors
from headrace.planning import Machine, calibrate, solve
from headrace.transforms import CenterCrop


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("planner") / "photos", 12)


def test_a_folder_is_measured_and_planned(folder, tmp_path):
    steps = []
    found = headrace.plan(
        folder,
        step=0.005,
        emulate="storage=5MB/s,cores=1",
        crop=48,
        batch_size=4,
        quick=True,
        progress=lambda *step: steps.append(step),
    )
    found.save(tmp_path / "plan.json")

    assert (found.calibration.images, found.calibration.batch_size, found.step) == (12, 4, 0.005)
    assert (found.machine.storage_rate, found.machine.cores, found.machine.emulated) == (5e6, 1, True)
    assert found.calibration.recipe["transforms"][0]["op"] == "random_resized_crop"
    assert [done for done, _, _ in steps] == list(range(len(steps)))
    assert headrace.build(folder, tmp_path / "photos.hr", plan=tmp_path / "plan.json").samples == 12


def test_own_transforms_replace_the_usual_ones(folder):
    found = headrace.plan(folder, transform=[CenterCrop(32)], batch_size=4, formats=["raw"], quick=True)

    assert found.calibration.recipe["transforms"] == [CenterCrop(32).to_json()]
    assert not found.machine.emulated


def test_known_costs_are_not_measured_again(photos, tmp_path):
    machine = Machine(storage_rate=700e6, cores=2)
    expected = solve(photos, machine, step=0.05, disk_budget=30e9)
    expected.save(tmp_path / "plan.json")
    (tmp_path / "costs.json").write_text(json.dumps(photos.to_json()))
    options = {"step": 0.05, "disk_budget": "30GB", "machine": machine}

    assert headrace.plan(calibration=photos, **options) == expected
    assert headrace.plan(calibration=tmp_path / "costs.json", **options) == expected
    assert headrace.plan(calibration=tmp_path / "plan.json", disk_budget=30e9) == expected
    other = headrace.plan(calibration=expected, emulate="cores=8")
    assert (other.machine.storage_rate, other.machine.cores, other.machine.emulated, other.step) == (
        700e6,
        8,
        True,
        0.05,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give a source to measure"),
        ({"crop": 8, "transform": []}, "crop or transform, not both"),
        ({"crop": 8, "recipe": {}}, "omit crop"),
        ({"emulate": "gpus=3"}, "'gpus=3' cannot be emulated"),
        ({"disk_budget": "much"}, "a size must be written as"),
    ],
)
def test_wrong_options_are_named_before_anything_is_measured(options, message, tmp_path):
    source = tmp_path if "crop" in options else None
    with pytest.raises(ValueError, match=message):
        headrace.plan(source, **options)


def test_costs_have_their_own_batch_size(photos):
    with pytest.raises(ValueError, match="omit recipe, transform, crop and batch_size"):
        headrace.plan(calibration=photos, batch_size=8)


def test_a_source_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(errors.BadSource, match="nowhere"):
        headrace.plan(tmp_path / "nowhere", quick=True)


def test_calibrate_and_plan_agree_on_the_default_batch_size(folder):
    assert calibrate(folder, formats=["raw"], quick=True, cores=1).batch_size == 64
