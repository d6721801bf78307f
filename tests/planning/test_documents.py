# SPDX-License-Identifier: Apache-2.0
"""Calibrations and machines as JSON, and sizes, rates and environments as people write them."""

from __future__ import annotations

import json
import math

import pytest
from tests.planning.conftest import make_cost

from headrace.planning import Calibration, Machine, parse_emulation
from headrace.planning.documents import write_json
from headrace.units import parse_bytes, parse_rate


def test_calibrations_and_machines_come_back_from_json(photos, tmp_path):
    machine = Machine(cores=6, trainer_cores=1, efficiency=0.9, provenance={"disk": "nvme"})

    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(photos.to_json()))
    assert Calibration.from_json(path) == photos
    assert Machine.from_json(json.loads(json.dumps(machine.to_json(), allow_nan=False))) == machine
    assert math.isinf(Machine.from_json(machine.to_json()).storage_rate)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "version 7"),
        ({"images": 0}, "images: 0; a number from 1"),
        ({"batch_size": 2.5}, "batch_size: 2.5; a whole number"),
        ({"costs": []}, "at least one format"),
        ({"costs": [{"format": "raw"}]}, "a cost has read_bytes: None"),
        ({"consumer_seconds": float("nan")}, "consumer_seconds: nan"),
        ({"source_format": 3}, "source_format: 3; text"),
    ],
)
def test_what_is_wrong_with_a_calibration_is_named(photos, change, message):
    with pytest.raises(ValueError, match=message):
        Calibration.from_json(photos.to_json() | change)


def test_a_file_that_is_no_json_is_named(tmp_path):
    (tmp_path / "c.json").write_text("costs")
    with pytest.raises(ValueError, match=r"c\.json is no calibration"):
        Calibration.from_json(tmp_path / "c.json")


def test_a_format_twice_is_refused(photos):
    with pytest.raises(ValueError, match="a format twice"):
        Calibration(costs=(*photos.costs, make_cost("png", 1, 1)), images=1, sampled=1, batch_size=1)


def test_what_is_neither_an_object_nor_a_file_is_refused():
    with pytest.raises(ValueError, match="a calibration is an object of JSON or a file, not 3"):
        Calibration.from_json(3)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    write_json(tmp_path / "plan.json", {"good": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "plan.json", {"bad": math.nan})

    assert json.loads((tmp_path / "plan.json").read_text()) == {"good": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("values", [{"cores": 0}, {"storage_rate": -1}, {"efficiency": 1.2}, {"trainer_cores": -1}])
def test_impossible_machines_are_refused(values):
    with pytest.raises(ValueError, match=r"positive|at least 0"):
        Machine(**{"cores": 1, **values})


def test_sizes_and_rates():
    assert parse_bytes("500GB") == 500 * 10**9
    assert parse_bytes("1.5 TiB") == int(1.5 * 2**40)
    assert parse_bytes("4096") == 4096
    assert parse_rate("200MB/s") == 200e6
    assert parse_rate("1.5g") == 1.5e9


@pytest.mark.parametrize("text", ["", "GB", "5 parsecs", "-3MB", "5iB", "1GB/h"])
def test_what_is_no_size_is_no_rate_either(text):
    with pytest.raises(ValueError, match="a size must"):
        parse_bytes(text)
    with pytest.raises(ValueError, match="a rate must"):
        parse_rate(text)


def test_a_size_is_no_rate_of_nothing():
    with pytest.raises(ValueError, match="a size must"):
        parse_bytes("3MB/s")
    with pytest.raises(ValueError, match="a rate must"):
        parse_rate("0MB/s")
    with pytest.raises(ValueError, match="'200' is 200 bytes per second; is its unit missing"):
        parse_rate("200")


def test_environments():
    assert parse_emulation("storage=200MB/s, cores=2") == {"storage_rate": 200e6, "cores": 2.0}
    assert parse_emulation("link=12GB/s") == {"link_rate": 12e9}


@pytest.mark.parametrize("text", ["cores=0", "cores=many", "disk=2", "storage"])
def test_what_cannot_be_emulated_is_named(text):
    with pytest.raises(ValueError, match=text.rpartition("=")[2]):
        parse_emulation(text)
