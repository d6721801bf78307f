# SPDX-License-Identifier: Apache-2.0
"""The demo runs, on a folder and without one, and says what is wrong with a folder that will not do."""

import subprocess
import sys

import numpy as np
from PIL import Image


def run(root, *arguments):
    command = [sys.executable, str(root / "examples" / "demo.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_demo_compares_a_folder_and_skips_what_is_no_image(root, tmp_path):
    slope = np.add.outer(np.arange(60), np.arange(70)).astype(np.uint8)
    Image.fromarray(slope).save(tmp_path / "slope.png")
    (tmp_path / "broken.png").write_bytes(b"no image at all")
    done = run(root, tmp_path)

    assert done.returncode == 0, done.stderr
    assert "slope" in done.stdout
    assert "skipped broken.png" in done.stdout
    assert "Altogether" in done.stdout


def test_demo_says_what_to_do_when_there_is_nothing_to_show(root, tmp_path):
    assert "is not a folder" in run(root, tmp_path / "missing").stderr
    assert "no image here" in run(root, tmp_path).stderr


def test_demo_shows_the_photographs_of_scikit_image(root):
    done = run(root)

    assert done.returncode == 0, done.stderr
    assert "astronaut" in done.stdout
