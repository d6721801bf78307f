# SPDX-License-Identifier: Apache-2.0
"""The code in the documentation runs as it stands, page by page, each in an empty folder; its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
PAGES = sorted(DOCS.rglob("*.md"))


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def script(page: Path) -> str:
    """One program of all blocks: Python as it is, with names shared; the shell's lines through `sh`."""
    lines = ["import subprocess"]
    for language, code in blocks(page):
        lines.append(code if language == "python" else f"subprocess.run(['sh', '-e', '-c', {code!r}], check=True)")
    return "\n".join(lines)


@pytest.fixture
def path_with_headrace(tmp_path_factory):
    """A folder with `headrace` as this Python has it, before all else on the path."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "headrace"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m headrace "$@"\n')
    command.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, tmp_path, path_with_headrace):
    result = subprocess.run(
        [sys.executable, "-c", script(page)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path_with_headrace},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_tutorial_ends_with_a_verified_dataset():
    code = "\n".join(code for _, code in blocks(DOCS / "tutorial.md"))
    for step in ("headrace build photos photos.hr", "headrace verify photos.hr", "headrace.open(", "headrace.Writer("):
        assert step in code
