# SPDX-License-Identifier: Apache-2.0
"""`headrace inspect`: a table for people, JSON for programs, damage in the exit code."""

from __future__ import annotations

import json

import numpy as np
import pytest

import headrace

ENCODED = headrace.encode(np.zeros((20, 30, 3), np.uint8), mode="fast", metadata={"icc": b"12345"})


def test_the_table_shows_shape_dtype_mode_and_metadata(run, folder):
    """One row per file."""
    (folder / "a.hri").write_bytes(ENCODED)
    ran = run("inspect", "a.hri")

    assert ran.code == 0
    for words in ("a.hri", "20 x 30 x 3", "uint8", "fast", str(len(ENCODED)), "icc (5 B)"):
        assert words in ran.out


def test_json_is_one_object_per_line(run, folder):
    """Every figure under a name, metadata by size."""
    (folder / "a.hri").write_bytes(ENCODED)
    (folder / "b.hri").write_bytes(ENCODED)
    rows = [json.loads(line) for line in run("inspect", ".", "--json").out.splitlines()]

    assert [row["file"] for row in rows] == ["a.hri", "b.hri"]
    assert rows[0]["shape"] == [20, 30, 3]
    assert rows[0]["n_bytes"] == len(ENCODED)
    assert rows[0]["bits_per_pixel"] == pytest.approx(8 * len(ENCODED) / 600, abs=1e-3)
    assert rows[0]["metadata"] == {"icc": 5}


def test_damage_is_named(run, folder):
    """A damaged head always, a damaged tile with --verify."""
    (folder / "head.hri").write_bytes(ENCODED[:20])
    (folder / "tile.hri").write_bytes(ENCODED[:-1] + bytes([ENCODED[-1] ^ 1]))

    assert run("inspect", "tile.hri").code == 0
    ran = run("inspect", "tile.hri", "head.hri", "none.hri", "--verify")
    assert ran.code == 1
    for name in ("tile.hri", "head.hri", "none.hri"):
        assert f"failed {name}: " in ran.err


def test_info_of_an_image_is_inspect(run, folder):
    """`info` takes an image as well as a dataset."""
    (folder / "a[1].hri").write_bytes(ENCODED)

    assert run("info", "a[1].hri", "--json").out == run("inspect", "a[1].hri", "--json").out
    assert "20 x 30 x 3" in run("info", "a[1].hri").out
    assert run("info", "none.hri").code == 1


def test_info_takes_datasets_and_images_together(run, folder):
    """One JSON object per line, in the order given; a folder without either is reported."""
    (folder / "a.hri").write_bytes(ENCODED)
    (folder / "empty").mkdir()
    with headrace.Writer(folder / "a.hr", fields={"image": "image"}, workers=1) as writer:
        writer.write({"image": np.zeros((3, 4), np.uint8)})
    ran = run("inspect", "a.hr", "empty", "a.hri", "--json")
    rows = [json.loads(line) for line in ran.out.splitlines()]

    assert (rows[0]["samples"], rows[1]["file"]) == (1, "a.hri")
    assert ran.code == 1
    assert "failed empty: FileNotFoundError: must be a dataset or contain .hri files" in ran.err


def test_info_describes_tensors(run, folder):
    """Their dtype, shape and size, not their numbers."""
    headrace.build([{"latent": np.zeros((4, 8, 8), np.float16)}], folder / "l.hr", workers=1)

    assert "latent=4 x 8 x 8 float16, 512 B" in run("info", "l.hr").out
