# SPDX-License-Identifier: Apache-2.0
"""The demo runs, on a folder and without one, and says what is wrong with a folder that will not do."""

import runpy
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image


def run(root, *arguments):
    command = [sys.executable, str(root / "examples" / "demo.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_demo_loads_a_folder_and_skips_what_is_no_image(root, tmp_path):
    slope = np.add.outer(np.arange(60), np.arange(70)).astype(np.uint8)
    for number in range(3):
        Image.fromarray(slope + number).save(tmp_path / f"slope-{number}.png")
    (tmp_path / "broken.png").write_bytes(b"no image at all")
    done = run(root, tmp_path)

    assert done.returncode == 0, done.stderr
    assert "skipped broken.png" in done.stdout
    assert "compared 3 images with Pillow: 3 have the same pixels" in done.stdout
    assert "2 epochs of 3 images" in done.stdout
    assert "headrace.Loader" in done.stdout


@pytest.mark.parametrize(("folder", "told"), [("missing", "is not a folder"), ("", "found none")])
def test_demo_says_what_to_do_when_there_is_nothing_to_show(root, tmp_path, monkeypatch, folder, told):
    monkeypatch.setattr(sys, "argv", ["demo.py", str(tmp_path / folder)])
    with pytest.raises(SystemExit, match=told):
        runpy.run_path(str(root / "examples" / "demo.py"), run_name="__main__")


@pytest.mark.slow
def test_demo_makes_images_of_scikit_images_photographs(root):
    done = run(root)

    assert done.returncode == 0, done.stderr
    assert "the pixels of 8 of 8 that were compared are Pillow's" in done.stdout
    assert "2 epochs of 96 images" in done.stdout
