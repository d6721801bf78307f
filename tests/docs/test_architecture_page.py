# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md names files that exist, all folders of the package, and every file that a batch goes through."""

from __future__ import annotations

import ast
import gc
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.transforms import CenterCrop

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headrace"
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))

FOLDERS = re.findall(r"^\| `(\w+)/`", SECTIONS["Folders"], re.MULTILINE)


def imported_folders(path: Path) -> set[str]:
    """The first name after `headrace.` in every import of a module."""
    imports = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    names = [f"{node.module}.{alias.name}" for node in imports for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("headrace.")}


def named_files(text: str) -> set[str]:
    return set(re.findall(r"\b(?:\w+/)*\w+\.(?:py|cpp|h)\b", text))


@pytest.mark.parametrize("name", sorted(named_files(TEXT)))
def test_named_files_exist(name):
    assert (PACKAGE / name).is_file() or (ROOT / name).is_file(), f"docs/architecture.md names {name}: update the page"


def test_named_folders_exist():
    for name in re.findall(r"`((?:\w+/)+)`", TEXT):
        places = [ROOT, PACKAGE, *(path for path in PACKAGE.iterdir() if path.is_dir())]
        assert any((place / name).is_dir() for place in places), name


def test_every_folder_of_the_package_is_described():
    assert sorted(FOLDERS) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_imports_point_down_the_table():
    for folder in FOLDERS:
        imported = {name for path in (PACKAGE / folder).rglob("*.py") for name in imported_folders(path)}
        above = FOLDERS[: FOLDERS.index(folder)]
        assert not imported & set(above), f"{folder} imports from above"


def test_the_path_of_a_batch_names_every_file_that_a_batch_passes_through(tmp_path):
    samples = [{"image": np.full((8, 8, 3), number, np.uint8), "label": number} for number in range(12)]
    headrace.build(samples, tmp_path / "numbers.hr")
    entered: set[str] = set()

    def note_file(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            entered.add(path.relative_to(PACKAGE).as_posix())

    with headrace.Loader(
        tmp_path / "numbers.hr", batch_size=4, shuffle=True, transform=[CenterCrop(4)], output="numpy"
    ) as loader:
        batches = iter(loader)
        next(batches)
        gc.disable()  # a collection would run finalizers of what other tests have left behind
        sys.setprofile(note_file)
        try:
            next(batches)
        finally:
            sys.setprofile(None)
            gc.enable()

    assert "loader/_iterator.py" in entered
    assert entered <= named_files(SECTIONS["The path of a batch"])
