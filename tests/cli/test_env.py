# SPDX-License-Identifier: Apache-2.0
"""`headrace env`: what a bug report needs to say of a machine."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import headrace
from headrace import storage
from headrace.units import usable_cores


def test_it_shows_versions_targets_and_decoders(run):
    ran = run("env")

    assert ran.code == 0
    assert f"headrace  {headrace.__version__}" in ran.out
    assert f"package   numpy {np.__version__}" in ran.out
    assert f"{headrace.codec.active_target()} is used" in ran.out
    assert f"cores     {usable_cores()}" in ran.out


def test_json_is_for_programs(run):
    found = json.loads(run("env", "--json").out)

    assert found["headrace"] == headrace.__version__
    assert found["targets"] == list(headrace.codec.targets())
    assert found["decoders"].keys() == {"hri:fast", "hri:dense", "png", "jpeg", "webp", "raw"}
    assert found["decoders"]["hri:fast"] == "headrace, in the core"
    assert found["decoders"]["png"] == "headrace, in the core"
    assert found["decoders"]["webp"].endswith("in Python threads")
    assert re.fullmatch(r"libjpeg-turbo [\d.]+, in the core", found["decoders"]["jpeg"])
    assert found["packages"]["pyarrow"]


def test_it_shows_where_images_are_decoded_and_how_bytes_get_there(run):
    pytest.importorskip("torch")
    found = json.loads(run("env", "--json").out)

    assert found["devices"]
    assert all("decode" in words for words in found["devices"].values())
    assert found["device_storage"] == storage.transfer_method()
    assert "storage   read to a GPU: " in run("env").out
    for name in found["devices"]:
        assert f"device    {name}: " in run("env").out


def test_accelerators_are_listed(run, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"Device {number}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = json.loads(run("env", "--json").out)

    assert found["devices"].keys() == {"cuda:0", "cuda:1"}
    assert found["devices"]["cuda:1"].startswith("Device 1, decodes hri with ")
    assert found["device_storage"] == "pinned"
