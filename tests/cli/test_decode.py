# SPDX-License-Identifier: Apache-2.0
"""`headrace decode`: PNG by default, NumPy for the rest, depth and metadata kept."""

from __future__ import annotations

import imagecodecs
import numpy as np
import pytest
from PIL import Image

import headrace
from headrace.cli import decode as decode_verb

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_png_keeps_depth_and_channels(run, folder, dtype, channels):
    """What a strict reader finds in the PNG is what was in the .hri."""
    image = RNG.integers(0, np.iinfo(dtype).max + 1, (20, 30, channels)).astype(dtype)
    (folder / "a.hri").write_bytes(headrace.encode(image))
    ran = run("decode", "a.hri", "--verify")

    assert ran.code == 0, ran.err
    assert ran.out.startswith("decoded 1 image: ")
    read = imagecodecs.png_decode((folder / "a.png").read_bytes())
    assert read.dtype == image.dtype
    np.testing.assert_array_equal(read.reshape(image.shape), image)


@pytest.mark.parametrize("image", [np.arange(-8, 8, dtype=np.int16).reshape(4, 4), np.zeros((4, 4, 7), np.uint8)])
def test_what_png_cannot_hold_goes_to_numpy(run, folder, image):
    """The error names the way out, and the way works: by option or by the output's name."""
    (folder / "a.hri").write_bytes(headrace.encode(image))
    ran = run("decode", "a.hri")

    assert ran.code == 1
    assert "--to npy" in ran.err
    assert run("decode", "a.hri", "--to", "npy", "--verify").code == 0
    assert run("decode", "a.hri", "-o", "b.npy").code == 0
    for name in ("a.npy", "b.npy"):
        np.testing.assert_array_equal(np.load(folder / name), image)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_metadata_returns(run, folder, dtype):
    """ICC, EXIF and XMP are read back from the PNG, whichever library wrote its pixels."""
    exif = Image.Exif()
    exif[0x0112] = 6
    blocks = {"icc": b"profile", "exif": exif.tobytes().removeprefix(b"Exif\0\0"), "xmp": b"<x/>"}
    (folder / "a.hri").write_bytes(headrace.encode(np.zeros((4, 5, 3), dtype), metadata=blocks))
    run("decode", "a.hri")
    with Image.open("a.png") as image:
        assert image.info["icc_profile"] == b"profile"
        assert image.info["xmp"] == b"<x/>"
        assert image.getexif()[0x0112] == 6
    (folder / "a.hri").unlink()
    assert run("encode", "a.png").code == 0
    assert dict(headrace.inspect((folder / "a.hri").read_bytes()).metadata) == blocks


def test_folders_and_damage(run, folder):
    """The tree is repeated, the damaged file named with its tile, the others decoded."""
    (folder / "in/deep").mkdir(parents=True)
    encoded = headrace.encode(RNG.integers(0, 256, (20, 30), np.uint8))
    (folder / "in/deep/good.hri").write_bytes(encoded)
    (folder / "in/bad.hri").write_bytes(encoded[:-1] + bytes([encoded[-1] ^ 1]))
    ran = run("decode", "in", "-o", "out")

    assert ran.code == 1
    assert "failed in/bad.hri: CorruptImage: tile 0" in ran.err
    assert [str(path.relative_to(folder / "out")) for path in (folder / "out").rglob("*.*")] == ["deep/good.png"]


def test_a_bomb_is_refused(run, folder):
    """The limit counts pixels, not bytes."""
    (folder / "a.hri").write_bytes(headrace.encode(np.zeros((1000, 1000), np.uint8)))
    ran = run("decode", "a.hri", "--max-pixels", "999999")

    assert ran.code == 1
    assert "ImageTooLarge" in ran.err


def test_verify_finds_what_does_not_come_back(run, folder, monkeypatch):
    """A PNG that reads differently is an error, and is not written."""
    (folder / "a.hri").write_bytes(headrace.encode(np.zeros((4, 4), np.uint8)))
    real = decode_verb.encode_png
    monkeypatch.setattr(decode_verb, "encode_png", lambda array, metadata: real(array ^ 1, metadata))
    ran = run("decode", "a.hri", "--verify")

    assert ran.code == 1
    assert "same pixels" in ran.err
    assert not (folder / "a.png").exists()


def test_nothing_is_overwritten_without_force(run, folder):
    """As for encode."""
    (folder / "a.hri").write_bytes(headrace.encode(np.zeros((4, 4), np.uint8)))
    (folder / "a.png").write_bytes(b"precious")

    assert run("decode", "a.hri").code == 1
    assert (folder / "a.png").read_bytes() == b"precious"
    assert run("decode", "a.hri", "-f").code == 0
