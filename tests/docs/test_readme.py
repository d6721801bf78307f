# SPDX-License-Identifier: Apache-2.0
"""The commands and the code of the README run as printed, in their order, on a folder of photographs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
USE = README.partition("\n## Use\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^    (headrace .*)$", USE, re.MULTILINE)
LOADER = "".join(line[4:] + "\n" for line in re.findall(r"^    (?!headrace ).*$|^$", USE, re.MULTILINE))
SINGLE_IMAGES = re.findall(r"^```python\n(.*?)^```$", USE, re.MULTILINE | re.DOTALL)
# What a reader has in their training script.
TRAINING = "mean, std, step = (0.5,) * 3, (0.25,) * 3, lambda image, label: print(image.shape, label.shape)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with photographs in two class folders, and one by itself."""
    path = tmp_path_factory.mktemp("readme")
    rng = np.random.default_rng(0)
    for number in range(320):
        smooth = np.add.outer(np.arange(96), np.arange(128))[..., None] + rng.integers(0, 16, (96, 128, 3))
        file = path / "photos" / f"class{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(smooth.astype(np.uint8)).save(file)
    Image.fromarray(smooth.repeat(4, 0).repeat(4, 1).astype(np.uint8)).save(path / "photo.png")
    return path


@pytest.fixture
def environment(tmp_path):
    """PATH that starts with a folder in which `headrace` uses this Python."""
    command = tmp_path / "headrace"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m headrace "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


def test_the_section_shows_every_step():
    assert [line.split()[1] for line in COMMANDS] == ["build", "verify", "profile", "plan", "build", "offload"]
    assert "headrace.Loader(" in LOADER
    assert len(SINGLE_IMAGES) == 1


@pytest.mark.slow  # the profile measures for 150 s
def test_the_section_runs_as_printed(folder, environment):
    def run(code):
        command = [sys.executable, "-c", code] if "\n" in code else ["sh", "-c", code]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{code}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    *commands, offload = (line.partition("#")[0].strip() for line in COMMANDS)
    for command in commands:
        run(command)
        if command.startswith("headrace verify"):
            assert "torch.Size([256, 3, 224, 224]) torch.Size([256])" in run(TRAINING + LOADER)
    assert (folder / "report" / "index.html").exists()
    run(SINGLE_IMAGES[0])

    assert offload.endswith("&")
    with subprocess.Popen(offload.removesuffix("&").split(), cwd=folder, env=environment) as worker:
        run(TRAINING + LOADER.replace('"photos.hr", ', '"photos.hr", offload="exchange", '))
        worker.terminate()
        assert worker.wait(30) == 0
