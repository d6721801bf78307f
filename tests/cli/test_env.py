# SPDX-License-Identifier: Apache-2.0
"""`headrace env`: what a bug report needs to say of a machine."""

from __future__ import annotations

import json
import platform
import re
import sys
import sysconfig
from importlib import metadata

import numpy as np
import pytest

import headrace
from headrace import storage
from headrace.units import usable_cores


def test_it_shows_versions_targets_and_decoders(run):
    ran = run("env")

    assert ran.code == 0
    assert f"headrace  {headrace.__version__}\n" in ran.out
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
    assert found["packages"].keys() == {"numpy", "pillow", "pyarrow", "rich", "typer"}
    assert all(found["packages"].values())
    assert found["free_threaded"] == bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert found["gil_enabled"] == getattr(sys, "_is_gil_enabled", lambda: True)()
    assert found["python"] == platform.python_version()


def test_it_shows_the_libraries_that_were_linked(run):
    found = json.loads(run("env", "--json").out)

    assert found["libraries"].keys() == {"libjpeg-turbo", "libdeflate"}
    assert all(re.fullmatch(r"[\d.]+", version) for version in found["libraries"].values())
    for name, version in found["libraries"].items():
        assert f"{name} {version}" in run("env").out


def test_it_shows_every_extra_and_how_to_install_what_is_missing(run, monkeypatch):
    real = metadata.version

    def version(package):
        if package in {"jinja2", "triton"}:
            raise metadata.PackageNotFoundError(package)
        return "1.2.3" if package in {"scipy", "torch"} else real(package)

    monkeypatch.setattr(metadata, "version", version)
    found = json.loads(run("env", "--json").out)
    shown = run("env").out

    declared = metadata.metadata("headrace").get_all("Provides-Extra")
    assert found["extras"].keys() == set(declared) - {"all"}
    assert found["extras"]["plan"] == {"scipy": "1.2.3"}
    assert found["extras"]["report"] == {"jinja2": None}
    assert found["extras"]["gpu"] == {"triton": None, "torch": "1.2.3"}
    assert "extra     plan: scipy 1.2.3\n" in shown
    assert "extra     report: jinja2 is missing: pip install 'headrace[report]'" in shown
    assert "extra     gpu: torch 1.2.3; triton is missing: pip install 'headrace[gpu]'" in shown


def test_it_runs_where_nothing_was_installed(run, monkeypatch):
    def missing(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "requires", missing)

    assert json.loads(run("env", "--json").out)["extras"] == {}


def test_it_says_that_python_is_free_threaded(run, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else None)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert f"{platform.python_version()}, free-threaded\n" in run("env").out

    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True)
    assert "free-threaded, but the GIL is enabled\n" in run("env").out


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
