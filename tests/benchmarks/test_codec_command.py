# SPDX-License-Identifier: Apache-2.0
"""The codec benchmark from end to end, on images so small that it takes a moment."""

import json
import subprocess
import sys

import imagecodecs
import numpy as np
import pytest
from PIL import Image


def run(root, *arguments):
    command = [sys.executable, str(root / "benchmarks" / "codec.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def folder(tmp_path):
    """A folder with a colour image that has room for a region, and a gray one that has not."""
    images = tmp_path / "tiny"
    images.mkdir()
    slope = np.add.outer(np.arange(260), np.arange(270)).astype(np.uint8)
    Image.fromarray(np.dstack([slope, slope // 2, slope // 3])).save(images / "colour.png")
    Image.fromarray(slope[:30, :50].copy()).save(images / "gray.png")
    return images


def test_table_and_json_hold_every_codec(root, folder, tmp_path):
    output = tmp_path / "codec.json"
    done = run(root, folder, "--quick", "--regions", "--threads", "-o", output)

    assert done.returncode == 0, done.stderr
    assert "tiny: 2 images" in done.stdout
    assert "hri:dense" in done.stdout
    document = json.loads(output.read_text())
    assert document["command"] == "python benchmarks/codec.py tiny --quick --regions --threads"
    assert str(tmp_path) not in output.read_text()
    (measured,) = document["sets"]
    totals = {codec["name"]: codec["total"] for codec in measured["codecs"]}
    assert totals["png"]["ratios"] == {"n_bytes": 1.0, "decode": 1.0, "encode": 1.0}
    for mode in ("fast", "dense"):
        assert totals[mode]["images"] == 2
        assert totals[mode]["decode_mps"] > 0
        assert sum(row["n_bytes"] for row in measured["rows"] if row["codec"] == mode) == totals[mode]["n_bytes"]
    if "qoi" in totals:
        assert totals["qoi"] is None, "QOI cannot hold the gray image, so it has no total"
    assert [row["image"] for row in measured["regions"]] == ["colour.png"] * 2
    assert len(measured["threads"]) == 4


def test_png_files_are_decoded_as_they_are(root, folder, tmp_path):
    output = tmp_path / "codec.json"
    (folder / "gray.png").unlink()  # --quick measures three images
    Image.new("P", (9, 9)).save(folder / "palette.png")
    (folder / "deep.png").write_bytes(imagecodecs.png_encode(np.full((9, 9, 3), 40000, np.uint16)))
    done = run(root, folder, "--quick", "--only", "png", "--png", "-o", output)

    assert done.returncode == 0, done.stderr
    measured = json.loads(output.read_text())["sets"][0]["png"]
    assert measured["omitted"] == ["deep.png", "palette.png"]
    assert {"Pillow", "headrace"} <= {row["library"] for row in measured["decode"]}
    assert {row["image"] for row in measured["decode"]} == {"colour.png"}
    assert {row["n_filtered"] for row in measured["inflate"]} == {260 * (270 * 3 + 1)}
    assert "1 PNG files as they" in done.stdout


def test_only_measures_what_is_named(root, folder, tmp_path):
    output = tmp_path / "codec.json"
    done = run(root, folder, "--quick", "--only", "fast", "--target", "scalar", "-o", output)

    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    assert {codec["name"] for codec in document["sets"][0]["codecs"]} <= {"png", "png-imagecodecs", "fast"}
    assert document["headrace"]["target"] == "scalar"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "missing must be a folder of images"),
        (["--only", "djvu"], "got djvu"),
        (["--target", "abacus"], "abacus"),
    ],
)
def test_mistakes_are_named_without_a_traceback(root, arguments, message):
    done = run(root, *arguments)

    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
