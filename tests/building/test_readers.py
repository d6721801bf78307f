# SPDX-License-Identifier: Apache-2.0
"""What `build` reads of image files: every bit, band and page, or an error; and what it says about the rest."""

from __future__ import annotations

import io

import numpy as np
import pytest
import typer
from PIL import Image, ImageOps
from tests.building.pictures import make_image
from tests.sources.pictures import png, write
from typer.testing import CliRunner

import headrace
from headrace.cli import build as build_verb
from headrace.errors import BuildError
from headrace.formats.foreign import read_picture

imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")

RNG = np.random.default_rng(0)


def image_of(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape, dtype=dtype)


def tiff(array, **options):
    stream = io.BytesIO()
    options = {"photometric": "minisblack", **options}
    tifffile.imwrite(stream, array, **options)
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


RGB16 = image_of(np.uint16, 20, 30, 3)
DEEP = {
    "rgb16.tif": (RGB16, tiff(RGB16, photometric="rgb")),
    "int16.tif": (a := image_of(np.int16, 20, 30), tiff(a)),
    "gray16.tif": (a := image_of(np.uint16, 20, 30), tiff(a)),
    "two bands.tif": (a := image_of(np.uint8, 20, 30, 2), tiff(a, planarconfig="contig")),
    "four bands.tif": (
        a := image_of(np.uint8, 20, 30, 4),
        tiff(a, photometric="rgb", extrasamples=["unspecified"]),
    ),
    "seven bands.tif": (a := image_of(np.uint16, 20, 30, 7), tiff(a, planarconfig="contig")),
    "planes.tif": (
        a := image_of(np.uint8, 20, 30, 5),
        tiff(np.moveaxis(a, 2, 0), planarconfig="separate"),
    ),
    "big.tif": (a := image_of(np.uint8, 20, 30), tiff(a, bigtiff=True)),
    "rgb16.png": (RGB16, imagecodecs.png_encode(RGB16)),
    "gray.pgm": (a := image_of(np.uint16, 20, 30), b"P5 30 20 65535\n" + a.astype(">u2").tobytes()),
    "a.jp2": (RGB16, imagecodecs.jpeg2k_encode(RGB16, level=0)),
    "a.jxl": (RGB16, imagecodecs.jpegxl_encode(RGB16, lossless=True)),
    "a.npy": (a := image_of(np.int16, 20, 30, 6), npy(a)),
    "b.npy": (a := image_of(np.uint8, 20, 30, 1)[:, :, 0], npy(a[:, :, None])),
    "big endian.npy": (a := image_of(np.uint16, 20, 30), npy(a.astype(">u2"))),
}


@pytest.mark.parametrize("name", DEEP)
def test_every_bit_and_band_is_kept(tmp_path, name):
    """By `build` and by `encode`, which read the same files."""
    expected, data = DEEP[name]
    write(tmp_path / "root", {name: data, "other.png": png(0)})
    headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1)
    ds = headrace.open(tmp_path / "a.hr", color="keep")
    index = [ds.key(n) for n in range(2)].index(name)
    np.testing.assert_array_equal(ds[index]["image"], expected)
    encoded = read_picture(data, "." + name.rpartition(".")[2], max_pixels=10**6).array
    np.testing.assert_array_equal(encoded.reshape(expected.shape), expected)


def test_avif(tmp_path):
    data = imagecodecs.avif_encode(make_image(0), level=90)
    write(tmp_path / "root", {"a.avif": data})
    headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1)
    np.testing.assert_array_equal(headrace.open(tmp_path / "a.hr")[0]["image"], imagecodecs.avif_decode(data))


def frames(kind, count=2):
    first, *rest = [Image.fromarray(make_image(n)[:20, :20]) for n in range(count)]
    stream = io.BytesIO()
    first.save(stream, kind, save_all=True, append_images=rest)
    return stream.getvalue()


MANY = {
    "a.gif": frames("GIF"),
    "a.png": frames("PNG"),
    "a.tif": frames("TIFF"),
    "b.tif": tiff(RGB16[None, ..., 0].repeat(3, 0)),
}


@pytest.mark.parametrize("name", MANY)
def test_several_pages_need_a_choice(tmp_path, name):
    write(tmp_path / "root", {name: MANY[name]})
    with pytest.raises(BuildError, match=r"several pages or frames.*--pages first"):
        headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1)
    headrace.build(tmp_path / "root", tmp_path / "b.hr", workers=1, pages="first")
    assert len(headrace.open(tmp_path / "b.hr")) == 1


def test_one_page_is_one_page(tmp_path):
    """Also with smaller copies of itself, as satellite images have them."""
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        writer.write(RGB16[..., 0])
        writer.write(RGB16[::2, ::2, 0], subfiletype=1)
    write(tmp_path / "root", {"a.gif": frames("GIF", 1), "a.png": frames("PNG", 1), "c.tif": stream.getvalue()})
    headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1)
    np.testing.assert_array_equal(headrace.open(tmp_path / "a.hr", color="keep")[2]["image"], RGB16[..., 0])
    np.testing.assert_array_equal(read_picture(stream.getvalue(), ".tif", max_pixels=10**6).array, RGB16[..., 0])


def oriented(image, orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, exif=exif.tobytes(), **({"lossless": True} if kind == "WEBP" else {}))
    return stream.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("format_name", ["hri:dense", "png"])
def test_orientation_on_request(tmp_path, orientation, kind, format_name):
    """As Pillow turns it; the metadata that is carried along no longer says that it is to be turned."""
    data = oriented(make_image(3), orientation, kind)
    write(tmp_path / "root", {"a": data})
    (tmp_path / "root" / "a").rename(tmp_path / "root" / f"a.{kind.lower()}")
    headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1, format=format_name, apply_orientation=True)
    ds = headrace.open(tmp_path / "a.hr", color="keep")
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    np.testing.assert_array_equal(ds[0]["image"], upright)
    assert ds.column("image.orientation").tolist() == [1]
    stored, _ = ds.read(0, "image")
    assert headrace.formats.orientation(stored) == 1
    assert ds.verify().ok
    assert ds.manifest.options["apply_orientation"] is True


def test_orientation_of_a_dataset(tmp_path):
    """The index knows it, whatever the stored bytes say."""
    image = make_image(3)
    write(tmp_path / "root", {"a.png": oriented(image, 6, "PNG")})
    headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1)
    headrace.build(tmp_path / "a.hr", tmp_path / "b.hr", workers=1, apply_orientation=True)
    np.testing.assert_array_equal(headrace.open(tmp_path / "b.hr")[0]["image"], np.rot90(image, -1))


def test_orientation_needs_a_format(tmp_path):
    write(tmp_path / "root", {"a.png": png(0)})
    with pytest.raises(ValueError, match=r"apply_orientation changes the pixels.*choose a format"):
        headrace.build(tmp_path / "root", tmp_path / "a.hr", format="keep", apply_orientation=True)


def jpeg(image):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=80)
    return stream.getvalue()


def test_growth_is_reported(tmp_path):
    write(tmp_path / "root", {f"{n}.jpg": jpeg(make_image(n, 200)) for n in range(5)})
    report = headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1)
    (warning,) = report.warnings
    factor = sum(headrace.open(tmp_path / "a.hr").column("image.0.length")) / report.source_bytes
    assert f"{factor:.1f} times" in warning
    assert "5 of 5 samples are JPEG" in warning
    assert "--format keep" in warning
    assert headrace.build(tmp_path / "root", tmp_path / "b.hr", workers=1, format="keep").warnings == ()
    write(tmp_path / "pngs", {f"{n}.png": png(n) for n in range(5)})
    assert headrace.build(tmp_path / "pngs", tmp_path / "c.hr", workers=1, format="raw").warnings == ()


def test_what_is_ignored_is_counted_and_named(tmp_path):
    write(tmp_path / "root", {"cat/a.png": png(0), "cat/a.txt": b"", "cat/b.txt": b"", "dog/a.png": png(1)})
    write(tmp_path / "root", {"dog/scan.dcm": b"", "readme.md": b"", "stray.png": png(2), ".hidden": b""})
    report = headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1, kind="classes")
    assert report.ignored == (
        "2 .txt (such as cat/a.txt)",
        "1 .dcm (such as dog/scan.dcm)",
        "1 .md (such as readme.md)",
        "1 .png (such as stray.png)",
    )


def test_the_command_says_it_all(tmp_path):
    write(tmp_path / "root", {f"{n}.jpg": jpeg(make_image(n, 200)) for n in range(5)} | {"notes.txt": b""})
    app = typer.Typer()
    app.command()(build_verb.build)
    arguments = [str(tmp_path / "root"), str(tmp_path / "a.hr"), "-j", "1"]
    first, again = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert "1 .txt (such as notes.txt)" in first.stderr
    assert "warning: the images take" in first.stderr
    assert again.stdout.startswith("nothing to do: ")
