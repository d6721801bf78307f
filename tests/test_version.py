# SPDX-License-Identifier: Apache-2.0
"""The version is written in one place; the changelog, the metadata and the tag of a release agree with it."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import headrace

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_installed_metadata_has_the_version():
    assert metadata.version("headrace") == headrace.__version__


def test_the_version_is_read_from_the_package():
    source = PROJECT["tool"]["scikit-build"]["metadata"]["version"]["input"]

    assert "version" in PROJECT["project"]["dynamic"]
    assert f'__version__ = "{headrace.__version__}"' in (ROOT / source).read_text(encoding="utf-8")


def test_the_changelog_begins_with_this_version():
    changelog = ROOT / "CHANGELOG.md"

    assert re.findall(r"^## (\S+),", changelog.read_text(encoding="utf-8"), re.MULTILINE)[0] == headrace.__version__


def test_a_release_is_refused_if_its_tag_is_another_version():
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")

    assert 'test "$GITHUB_REF_NAME" = "v$(' in workflow


def test_every_supported_python_gets_a_wheel():
    classifiers = PROJECT["project"]["classifiers"]
    versions = [name.rpartition(" ")[2] for name in classifiers if re.fullmatch(r".* :: 3\.\d+", name)]
    built = PROJECT["tool"]["cibuildwheel"]["build"]

    assert [f"cp{version.replace('.', '')}-*" for version in versions] == [name for name in built if "t-" not in name]
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    assert any("Free Threading" in name for name in classifiers) == any("t-" in name for name in built)


def test_every_extra_is_part_of_all():
    extras = PROJECT["project"]["optional-dependencies"]
    listed = [name.removeprefix("headrace[").removesuffix("]") for name in extras["all"]]
    direct = {name for names in listed for name in names.split(",")}
    nested = {
        name.removeprefix("headrace[").removesuffix("]") for extra in direct for name in extras[extra] if "[" in name
    }

    assert direct | nested == extras.keys() - {"all"}
