# SPDX-License-Identifier: Apache-2.0
"""Calibrations and machines as JSON; sizes, rates and emulated machines as text."""

from __future__ import annotations

import json
import math

import pytest
from tests.planning.conftest import make_cost

from headrace.documents import save_json
from headrace.planning import Calibration, Machine, parse_emulation
from headrace.units import parse_bytes, parse_rate


def test_calibrations_and_machines_survive_json(photos, tmp_path):
    machine = Machine(cores=6, trainer_cores=1, provenance={"disk": "nvme"})

    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(photos.to_json()))
    assert Calibration.from_json(path) == photos
    assert Machine.from_json(json.loads(json.dumps(machine.to_json(), allow_nan=False))) == machine
    assert math.isinf(Machine.from_json(machine.to_json()).storage_rate)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "must have version 1; got version 7"),
        ({"images": 0}, "must be >= 1; got 0"),
        ({"batch_size": 2.5}, r"calibration\.batch_size must be an integer >= 0; got 2\.5"),
        ({"costs": []}, "at least one format"),
        ({"costs": [{"format": "raw"}]}, r"calibration\.costs\[0\] must have a member 'read_bytes'"),
        ({"consumer_seconds": float("nan")}, "consumer_seconds must be 0, or a number .* got nan"),
        ({"source_format": 3}, "source_format must be a string; got 3"),
    ],
)
def test_an_invalid_member_of_a_calibration_is_named(photos, change, message):
    with pytest.raises(ValueError, match=message):
        Calibration.from_json(photos.to_json() | change)


def test_a_file_that_is_not_json_is_named(tmp_path):
    (tmp_path / "c.json").write_text("costs")
    with pytest.raises(ValueError, match=r"c\.json must be a JSON file with a calibration"):
        Calibration.from_json(tmp_path / "c.json")


def test_a_format_twice_is_rejected(photos):
    with pytest.raises(ValueError, match="each format once; got png, "):
        Calibration(costs=(*photos.costs, make_cost("png", 1, 1)), images=1, sampled=1, batch_size=1)


def test_a_value_that_is_neither_an_object_nor_a_file_is_rejected():
    with pytest.raises(ValueError, match="calibration must be a JSON object or a file; got 3"):
        Calibration.from_json(3)


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path):
    save_json(tmp_path / "plan.json", {"good": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        save_json(tmp_path / "plan.json", {"bad": math.nan})

    assert json.loads((tmp_path / "plan.json").read_text()) == {"good": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("values", [{"cores": 0}, {"storage_rate": -1}, {"trainer_cores": -1}])
def test_impossible_machines_are_rejected(values):
    with pytest.raises(ValueError, match="must"):
        Machine(**{"cores": 1, **values})


def test_sizes_and_rates():
    assert parse_bytes("500GB") == 500 * 10**9
    assert parse_bytes("1.5 TiB") == int(1.5 * 2**40)
    assert parse_bytes("4096") == 4096
    assert parse_rate("200MB/s") == 200e6
    assert parse_rate("1.5g") == 1.5e9


@pytest.mark.parametrize("text", ["", "GB", "5 parsecs", "-3MB", "5iB", "1GB/h"])
def test_invalid_sizes_are_invalid_rates_too(text):
    with pytest.raises(ValueError, match="a size must"):
        parse_bytes(text)
    with pytest.raises(ValueError, match="a rate must"):
        parse_rate(text)


def test_sizes_and_rates_are_not_confused():
    with pytest.raises(ValueError, match="a size must"):
        parse_bytes("3MB/s")
    with pytest.raises(ValueError, match="a rate must"):
        parse_rate("0MB/s")
    with pytest.raises(ValueError, match="'200' is 200 bytes per second; is its unit missing"):
        parse_rate("200")


def test_emulated_machines():
    assert parse_emulation("storage=200MB/s, cores=2") == {"storage_rate": 200e6, "cores": 2.0}


@pytest.mark.parametrize("text", ["cores=0", "cores=many", "disk=2", "link=12GB/s", "storage"])
def test_invalid_emulations_are_named(text):
    with pytest.raises(ValueError, match=text.rpartition("=")[2]):
        parse_emulation(text)
