# SPDX-License-Identifier: Apache-2.0
"""Which files make a set, and in what form they reach the codecs."""

import numpy as np
import pytest
from benchmarks._codec.images import bundled_sets, folder_set, load
from PIL import Image


def test_a_folder_is_searched_in_depth_and_by_name(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("b.png", "a.PNG", "inner/c.png"):
        Image.new("L", (4, 4)).save(tmp_path / name, "PNG")
    (tmp_path / "notes.txt").write_text("no image")
    found = folder_set(tmp_path)

    assert [found.label(file) for file in found.files] == ["a.PNG", "b.png", "inner/c.png"]
    assert found.name == tmp_path.name


def test_an_empty_or_missing_folder_is_an_error_that_says_what_to_name(tmp_path):
    with pytest.raises(ValueError, match=r"must hold images .*; found none"):
        folder_set(tmp_path)
    with pytest.raises(ValueError, match="must be a folder of images"):
        folder_set(tmp_path / "missing")


def test_the_hash_knows_names_and_bytes(tmp_path):
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    before = folder_set(tmp_path).sha256()
    (tmp_path / "a.png").rename(tmp_path / "b.png")
    renamed = folder_set(tmp_path).sha256()
    Image.new("L", (4, 4), 1).save(tmp_path / "b.png")
    changed = folder_set(tmp_path).sha256()

    assert len({before, renamed, changed}) == 3
    assert folder_set(tmp_path).sha256() == changed


def test_palettes_become_colours_and_keep_their_transparency(tmp_path):
    opaque = Image.new("RGB", (8, 8), (1, 2, 3)).quantize(4)
    opaque.save(tmp_path / "opaque.png")
    opaque.save(tmp_path / "clear.png", transparency=0)

    assert load(tmp_path / "opaque.png").shape == (8, 8, 3)
    assert load(tmp_path / "clear.png").shape == (8, 8, 4)


def test_sixteen_bit_is_kept_in_gray_and_in_colour(tmp_path):
    imagecodecs = pytest.importorskip("imagecodecs", reason="writes and reads 16-bit colour PNG")
    gray = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    colour = np.dstack([gray, gray[::-1], gray.T]).copy()
    Image.fromarray(gray).save(tmp_path / "gray.png")
    (tmp_path / "colour.png").write_bytes(imagecodecs.png_encode(colour))

    assert np.array_equal(load(tmp_path / "gray.png"), gray)
    assert np.array_equal(load(tmp_path / "colour.png"), colour)
    assert load(tmp_path / "colour.png").dtype == np.uint16


def test_arrays_are_images_too_but_not_of_floats(tmp_path):
    bands = np.arange(4 * 5 * 7, dtype=np.int16).reshape(4, 5, 7)
    np.save(tmp_path / "bands.npy", bands)
    np.save(tmp_path / "floats.npy", bands.astype(float))

    assert np.array_equal(load(tmp_path / "bands.npy"), bands)
    with pytest.raises(ValueError, match=r"floats.npy must be an image of 8 or 16 bit; got float64"):
        load(tmp_path / "floats.npy")


def test_the_default_sets_are_photographs_that_need_no_download():
    colour, gray = bundled_sets()

    assert {load(file).shape[2:] for file in colour.files} == {(3,)}
    assert {load(file).shape[2:] for file in gray.files} == {()}
    assert len(colour.files) >= 6
