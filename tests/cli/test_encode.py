# SPDX-License-Identifier: Apache-2.0
"""`headrace encode`: files, folders and globs, every bit kept, nothing overwritten, damage named."""

from __future__ import annotations

import builtins
import importlib
import io

import imagecodecs
import numpy as np
import pytest
from PIL import Image

import headrace
from headrace.cli import encode as encode_verb

RNG = np.random.default_rng(3)
RGB = RNG.integers(0, 256, (20, 30, 3), np.uint8)
RGB16 = RNG.integers(0, 65536, (20, 30, 3)).astype(np.uint16)


def left_behind(folder):
    return [path for path in folder.rglob("*") if path.name.endswith(".tmp")]


def test_a_file_goes_beside_its_source(run, folder):
    """Bytes, ratio and speed are in the summary."""
    Image.fromarray(RGB).save("a.b.png")
    ran = run("encode", "a.b.png")

    assert ran.code == 0
    assert ran.out.startswith("encoded 1 image: ")
    assert "MP/s" in ran.out
    np.testing.assert_array_equal(headrace.decode((folder / "a.b.hri").read_bytes()), RGB)
    assert left_behind(folder) == []


def test_mode_and_output_file(run, folder):
    """An output that ends in .hri is the file itself, in folders that are made."""
    Image.fromarray(RGB).save("a.png")

    assert run("encode", "a.png", "-o", "new/b.hri", "--mode", "fast").code == 0
    assert headrace.inspect((folder / "new/b.hri").read_bytes()).mode == "fast"


def test_folders_are_repeated_under_the_output(run, folder):
    """The folder structure is kept; files that are not images are ignored."""
    for name in ("in/a.png", "in/deep/b.PNG", "in/deep/c.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RGB).save(name)
    (folder / "in/notes.txt").write_text("no image")
    ran = run("encode", "in", "-o", "out", "--verify", "-j", "2")

    assert (ran.code, ran.err) == (0, "")
    assert sorted(str(p.relative_to(folder / "out")) for p in (folder / "out").rglob("*.hri")) == [
        "a.hri",
        "deep/b.hri",
        "deep/c.hri",
    ]


def test_globs_are_expanded(run, folder):
    """Folders after the pattern's fixed part are kept."""
    for name in ("in/x/a.png", "in/y/a.png"):
        (folder / name).parent.mkdir(parents=True)
        Image.fromarray(RGB).save(name)

    assert run("encode", "in/**/*.png", "-o", "out").code == 0
    assert (folder / "out/x/a.hri").exists()
    assert (folder / "out/y/a.hri").exists()


def test_nothing_is_overwritten_without_force(run, folder):
    """The file that is there stays as it was, and the exit code says so."""
    Image.fromarray(RGB).save("a.png")
    (folder / "a.hri").write_bytes(b"precious")
    ran = run("encode", "a.png")

    assert ran.code == 1
    assert "--force" in ran.err
    assert (folder / "a.hri").read_bytes() == b"precious"
    assert run("encode", "a.png", "--force").code == 0
    np.testing.assert_array_equal(headrace.decode((folder / "a.hri").read_bytes()), RGB)


def test_two_sources_of_one_target_are_named(run):
    """a.jpg and a.png cannot both become a.hri."""
    Image.fromarray(RGB).save("a.png")
    Image.fromarray(RGB).save("a.jpg")
    ran = run("encode", ".")

    assert ran.code == 1
    assert "a.png" in ran.err
    assert ran.out.startswith("encoded 1 image")


def test_damaged_inputs_are_named_and_skipped(run, folder):
    """One damaged file costs no other."""
    Image.fromarray(RGB).save("good.png")
    (folder / "cut.png").write_bytes((folder / "good.png").read_bytes()[:200])
    (folder / "text.png").write_text("not an image")
    ran = run("encode", ".", "missing.png", "no*thing")

    assert ran.code == 1
    for name in ("cut.png", "text.png", "missing.png", "no*thing"):
        assert f"failed {name}: " in ran.err
    assert [path.name for path in folder.glob("*.hri")] == ["good.hri"]
    assert left_behind(folder) == []


def test_several_images_do_not_fit_one_file(run):
    """That is a mistake of usage, found before anything is read."""
    Image.fromarray(RGB).save("a.png")
    Image.fromarray(RGB).save("b.png")
    ran = run("encode", "a.png", "b.png", "-o", "c.hri")

    assert ran.code == 2
    assert "c.hri is a file name" in ran.err


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda: ("a.png", imagecodecs.png_encode(RGB16)), id="png"),
        pytest.param(
            lambda: ("a.tif", imagecodecs.tiff_encode(RGB16)),
            id="tiff",
            marks=pytest.mark.skipif(
                not getattr(imagecodecs.TIFF, "available", False), reason="imagecodecs without TIFF"
            ),
        ),
        pytest.param(lambda: ("a.jxl", imagecodecs.jpegxl_encode(RGB16, lossless=True)), id="jxl"),
        pytest.param(lambda: ("a.jp2", imagecodecs.jpeg2k_encode(RGB16, level=0)), id="jp2"),
    ],
)
def test_sixteen_bit_colour_keeps_every_bit(run, folder, write):
    """Pillow would give 8 bits; our PNG decoder and imagecodecs give all of them."""
    name, data = write()
    (folder / name).write_bytes(data)

    assert run("encode", name, "--verify").code == 0
    np.testing.assert_array_equal(headrace.decode((folder / "a.hri").read_bytes()), RGB16)


def test_sixteen_bit_gray_keeps_every_bit(run, folder):
    """PNG and PGM of 16 bit, and NumPy's own files of any depth."""
    gray = RGB16[..., 0]
    Image.fromarray(gray).save("png.png")
    (folder / "pgm.pgm").write_bytes(b"P5 30 20 65535\n" + gray.astype(">u2").tobytes())
    np.save("npy.npy", gray.astype(np.int16))

    assert run("encode", ".").code == 0
    np.testing.assert_array_equal(headrace.decode((folder / "png.hri").read_bytes()), gray)
    np.testing.assert_array_equal(headrace.decode((folder / "pgm.hri").read_bytes()), gray)
    np.testing.assert_array_equal(headrace.decode((folder / "npy.hri").read_bytes()), gray.astype(np.int16))


def test_without_imagecodecs_the_extra_is_named(run, folder, monkeypatch):
    """Sixteen bits are never reduced for want of a package."""

    def no_imagecodecs(name, *args):
        if name == "imagecodecs":
            raise ImportError(name)
        return real(name, *args)

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", no_imagecodecs)
    (folder / "a.jp2").write_bytes(imagecodecs.jpeg2k_encode(RGB16, level=0))
    ran = run("encode", "a.jp2")

    assert ran.code == 1
    assert "headrace[imagecodecs]" in ran.err
    assert not (folder / "a.hri").exists()


@pytest.mark.parametrize(
    ("name", "save", "words"),
    [
        ("a.jpg", lambda f: Image.new("CMYK", (8, 8)).save(f), "CMYK"),
        (
            "a.gif",
            lambda f: Image.new("L", (8, 8)).save(f, save_all=True, append_images=[Image.new("L", (8, 8), 9)]),
            "2 frames",
        ),
        ("a.pgm", lambda f: f.write_bytes(b"P5 1 1 15\n\x07"), "maximum value 255"),
        ("a.ppm", lambda f: f.write_bytes(b"P6 1 1 65535\n\1\2\3\4\5\6"), "maximum value 255"),
        ("a.npy", lambda f: np.save(f, np.zeros((4, 4))), "float64"),
        ("a.npy", lambda f: np.save(f, np.array([{}]), allow_pickle=True), "NumPy cannot read"),
        ("a.xyz", lambda f: f.write_bytes(headrace.encode(RGB)), "already"),
    ],
)
def test_what_would_lose_something_is_refused(run, folder, name, save, words):
    """Inks, frames, scales, fractions and code are not images that the format holds."""
    save(folder / name)
    ran = run("encode", name)

    assert ran.code == 1
    assert words in ran.err


def test_metadata_is_carried(run, folder):
    """ICC, EXIF and XMP of the source; orientation is not applied."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(RGB).save("a.jpg", exif=exif, icc_profile=b"profile", xmp=b"<x/>")
    run("encode", "a.jpg")
    info = headrace.inspect((folder / "a.hri").read_bytes())

    assert info.shape == (20, 30, 3)
    assert (info.metadata["icc"], info.metadata["xmp"]) == (b"profile", b"<x/>")
    again = Image.Exif()
    again.load(info.metadata["exif"])
    assert again[0x0112] == 6


def test_too_many_pixels_are_refused(run):
    """The limit is the user's."""
    Image.fromarray(RGB).save("a.png")
    ran = run("encode", "a.png", "--max-pixels", "599")

    assert ran.code == 1
    assert "--max-pixels" in ran.err


def test_verify_finds_what_does_not_come_back(run, folder, monkeypatch):
    """A wrong pixel is an error, and nothing is written."""
    Image.fromarray(RGB).save("a.png")
    monkeypatch.setattr(encode_verb.headrace, "decode", lambda *_, **__: RGB ^ 1)
    ran = run("encode", "a.png", "--verify")

    assert ran.code == 1
    assert "same pixels" in ran.err
    assert not (folder / "a.hri").exists()


def test_a_failed_write_leaves_nothing(run, folder, monkeypatch):
    """If the disk is full, no incomplete file is left."""
    Image.fromarray(RGB).save("a.png")

    class Full(io.BytesIO):
        def write(self, _content):
            raise OSError("no space left")

    real_open = io.open

    def full_open(path, mode="r", *args, **options):
        if mode == "xb":
            real_open(path, mode).close()
            return Full()
        return real_open(path, mode, *args, **options)

    monkeypatch.setattr(io, "open", full_open)
    monkeypatch.setattr(builtins, "open", full_open)
    ran = run("encode", "a.png")

    assert ran.code == 1
    assert "no space left" in ran.err
    assert sorted(path.name for path in folder.iterdir()) == ["a.png"]


def test_quiet_prints_errors_only(run, folder):
    """A result is not announced, a failure is."""
    Image.fromarray(RGB).save("a.png")
    (folder / "b.png").write_bytes(b"nothing")

    assert run("encode", "a.png", "-q").out == ""
    ran = run("encode", "b.png", "-q")
    assert ran.code == 1
    assert "failed b.png: " in ran.err
