# SPDX-License-Identifier: Apache-2.0
"""The code blocks of every page run as printed, each page in an empty folder; links and make targets exist."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
KERNELS = ROOT / "src" / "headrace" / "kernels"
BLOCK = re.compile(r"^```(python|bash)(?: title=\"([\w.]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
MAKE = re.compile(r"(?:`|^    )make ([a-z][a-z ]*)", re.MULTILINE)
PAGES = sorted(DOCS.rglob("*.md"))
OTHER_PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "spec").glob("*.md"))]

HOW_TOS = sorted((DOCS / "how-to").glob("*.md"))
# A thread of PyTorch's gloo may abort a process that is ending, without Headrace too; such a run is repeated once.
GLOO_ABORT = "terminate called without an active exception"
COMMANDS = {"headrace": "headrace", "torchrun": "torch.distributed.run"}
NEED = {"jax": ("flax", "jax", "optax", "orbax"), "trainers": ("accelerate", "lightning", "transformers")}


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return (language, title, code) of each block. A block with a title is a file."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def script(page: Path) -> str:
    """Return one program that runs all blocks of a page: Python in one namespace, bash through `sh`, files written."""
    lines = ["import pathlib", "import subprocess"]
    for language, title, code in blocks(page):
        if title:
            lines.append(f"pathlib.Path({title!r}).write_text({code!r})")
        else:
            lines.append(code if language == "python" else f"subprocess.run(['sh', '-e', '-c', {code!r}], check=True)")
    return "\n".join(lines)


@pytest.fixture
def path_with_commands(tmp_path_factory):
    """PATH that starts with a folder in which `headrace` and `torchrun` use this Python."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module in COMMANDS.items():
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        command.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def a_users_environment(path_with_commands):
    """Environment without TRITON_INTERPRET, which kernel tests set and which makes decoding slow."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return {**kept, "PATH": path_with_commands}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, tmp_path, a_users_environment):
    if page in HOW_TOS and importlib.util.find_spec("torch") is None:
        pytest.skip("how-tos are for users of PyTorch, which is not installed")
    missing = [library for library in NEED.get(page.stem, ()) if importlib.util.find_spec(library) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install --group trainers")
    for attempt in ("first", "second"):
        folder = tmp_path / attempt
        folder.mkdir()
        result = subprocess.run(
            [sys.executable, "-c", script(page)],
            cwd=folder,
            env=a_users_environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if GLOO_ABORT not in result.stderr:
            break
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", OTHER_PAGES, ids=lambda page: page.stem)
def test_make_targets_exist(page):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in MAKE.findall(page.read_text(encoding="utf-8")):
        assert set(line.split()) <= set(targets), line


def test_the_tutorial_ends_with_a_verified_dataset():
    code = "\n".join(code for *_, code in blocks(DOCS / "tutorial.md"))
    for step in ("headrace build photos photos.hr", "headrace verify photos.hr", "headrace.open(", "headrace.Writer("):
        assert step in code


def test_every_way_to_headrace_has_a_page_that_shows_the_change():
    pages = {page.stem: page.read_text(encoding="utf-8") for page in HOW_TOS}

    assert pages.keys() >= {"from-imagefolder", "from-webdataset", "from-ffcv", "ddp", "resuming"}
    for name, text in pages.items():
        assert "headrace.Loader(" in text
        assert ("```diff\n" in text) == name.startswith("from-")


def test_how_tos_can_be_found():
    index = (DOCS / "index.md").read_text(encoding="utf-8")

    for page in HOW_TOS:
        assert f"(how-to/{page.name})" in index


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in KERNELS.glob("*/triton.py")), ids=lambda path: path.name
)
def test_kernel_folders_have_a_short_readme(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 60
    for part in ("**Computes.**", "**Reference.**", "**The trick.**", "**The twist.**"):
        assert part in text
    for name in re.findall(r"`(\w+\.py)`", text):
        assert (folder / name).is_file(), name
