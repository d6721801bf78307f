# SPDX-License-Identifier: Apache-2.0
"""The command as a process: version, help, `python -m`, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

import headrace


def test_version_and_help(run):
    """The version is the package's, and every verb is listed with its examples."""
    assert run("--version").out.strip() == f"headrace {headrace.__version__}"
    assert run("encode", "--help").out.count("headrace encode ") >= 4


def test_help_groups_the_verbs(run):
    """Verbs are listed under what they are for."""
    text = run("--help").out
    groups = {"Diagnose": ("profile", "plan", "size", "env"), "Datasets": ("build", "info", "verify", "extract")}
    groups |= {"Images": ("encode", "decode", "inspect"), "Advanced": ("offload",)}
    words = text.replace("\u2502", " ").split()
    order = [words.index(word) for title, verbs in groups.items() for word in (title, *verbs)]

    assert order == sorted(order)


def test_python_dash_m_is_the_same_command(tmp_path):
    """It leaves with the command's exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "inspect", "none.hri"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert "none.hri" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_leaves_nothing_half_written(tmp_path):
    """Finished files are complete, unfinished ones do not exist, and the exit code is 130."""
    (tmp_path / "in").mkdir()
    noise = np.random.default_rng(1).integers(0, 256, (400, 400, 3), np.uint8)
    first = tmp_path / "in/000.png"
    Image.fromarray(noise).save(first, compress_level=0)
    for number in range(1, 600):
        (tmp_path / f"in/{number:03}.png").hardlink_to(first)
    command = [sys.executable, "-m", "headrace", "encode", "in", "-o", "out", "-j", "1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "out/000.hri").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    written = list((tmp_path / "out").iterdir())

    assert process.returncode == 130, stderr
    assert "interrupted" in stderr
    assert 0 < len(written) < 600
    for path in written:
        assert path.suffix == ".hri"
        np.testing.assert_array_equal(headrace.decode(path.read_bytes()), noise)
