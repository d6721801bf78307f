# SPDX-License-Identifier: Apache-2.0
"""What is built holds what the source held, in the formats that were asked for, byte for byte the same each time."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest
from PIL import Image
from tests.building.conftest import SHARD_SIZE
from tests.building.pictures import make_folder, make_image, tree

import headrace
from headrace import formats
from headrace.errors import BuildError
from headrace.records import hash64
from headrace.sources import Encoded, IterableSource


def encoded(image, kind, **options):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, **options)
    return Encoded(stream.getvalue(), formats.sniff(stream.getvalue()), "test")


def build_one(dest, sample, **options):
    options = {"workers": 1, **options}
    headrace.build([sample], dest, **options)
    return headrace.open(dest, color="keep")


@pytest.mark.usefixtures("worker_kind")
@pytest.mark.parametrize("workers", [2, 4])
def test_the_number_of_workers_does_not_show(source, expected, tmp_path, workers):
    headrace.build(source, tmp_path / "a.hr", workers=workers, shard_size=SHARD_SIZE)
    assert tree(tmp_path / "a.hr") == expected


def test_neither_does_the_place_of_source_and_destination(expected, tmp_path):
    moved = make_folder(tmp_path / "elsewhere" / "photos", 60)
    headrace.build(moved, tmp_path / "deep" / "er" / "b.hr", workers=1, shard_size=SHARD_SIZE)
    assert tree(tmp_path / "deep" / "er" / "b.hr") == expected


@pytest.mark.parametrize("format_name", ["hri:fast", "hri:dense", "png", "webp", "raw", "keep"])
def test_lossless_formats_keep_every_pixel_and_label(source, tmp_path, format_name):
    report = headrace.build(source, tmp_path / "a.hr", workers=1, format=format_name)
    ds = headrace.open(tmp_path / "a.hr")
    assert report.samples == len(ds) == 60
    assert ds.classes == ["ant", "bee", "cow"]
    for index in range(60):
        number = int(ds.key(index)[-8:-4])
        np.testing.assert_array_equal(ds[index]["image"], make_image(number))
        assert ds.key(index) == f"{ds.classes[ds[index]['label']]}/{number:04d}.png"
    stored = "png" if format_name == "keep" else format_name
    assert ds.formats == {"image": {stored: 60}}
    assert ds.verify(workers=1).ok


def test_keep_passes_the_files_through(source, tmp_path):
    headrace.build(source, tmp_path / "a.hr", workers=1, format="keep")
    ds = headrace.open(tmp_path / "a.hr")
    for index in range(60):
        assert bytes(ds.read(index, "image")[0]) == (source / ds.key(index)).read_bytes()


def test_the_report_counts(source, tmp_path):
    report = headrace.build(source, tmp_path / "a.hr", workers=1, shard_size=SHARD_SIZE)
    files = list(source.rglob("*.png"))
    assert report.samples == len(files)
    assert report.source_bytes == sum(path.stat().st_size for path in files)
    assert report.n_bytes == sum(len(content) for content in tree(tmp_path / "a.hr").values())
    assert report.shards == len(list((tmp_path / "a.hr" / "shards").iterdir()))
    assert report.kept_shards == report.skipped_count == 0
    assert report.samples_per_second > 0
    assert report.fingerprint == headrace.open(tmp_path / "a.hr").fingerprint


def test_shards_are_cut_by_the_bytes_of_the_source(source, tmp_path):
    headrace.build(source, tmp_path / "a.hr", workers=1, shard_size=SHARD_SIZE, format="raw")
    ds = headrace.open(tmp_path / "a.hr")
    sizes = [(source / ds.key(i)).stat().st_size for i in range(len(ds))]
    start = 0
    for number, shard in enumerate(ds.manifest.shards):
        assert set(ds.column("image.0.shard")[start : start + shard.samples]) == {number}
        mine = sizes[start : start + shard.samples]
        start += shard.samples
        assert sum(mine[:-1]) < SHARD_SIZE
        assert sum(mine) >= SHARD_SIZE or start == len(ds)


def test_jpeg_is_decoded_once_and_then_lossless(tmp_path):
    photo = encoded(make_image(3, 200), "JPEG", quality=80)
    ds = build_one(tmp_path / "a.hr", {"image": photo})
    assert ds.formats["image"] == {"hri:dense": 1}
    np.testing.assert_array_equal(ds[0]["image"], formats.get("jpeg").decode(photo.data))


def test_a_jpeg_that_is_to_be_jpeg_is_not_encoded_again(tmp_path):
    photo = encoded(make_image(3, 200), "JPEG", quality=80)
    ds = build_one(tmp_path / "a.hr", {"image": photo}, format="jpeg:95")
    assert bytes(ds.read(0, "image")[0]) == photo.data


def test_large_files_of_every_kind(tmp_path):
    """Those are decoded into memory that is used again: no picture may show in another's place."""
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 4)).astype(np.uint8)
    palette = Image.fromarray(noise[..., 0]).convert("P")
    palette.putpalette(noise.reshape(-1)[:768].tolist())
    stream = io.BytesIO()
    palette.save(stream, "PNG")
    files = [
        encoded(noise[..., :3], "PNG"),
        encoded(noise, "PNG"),
        encoded(noise[..., 0], "PNG"),
        encoded(noise[..., 0].astype(np.uint16) * 257, "PNG"),
        Encoded(stream.getvalue(), "png", "palette"),
        encoded(noise[..., :3], "JPEG", quality=95),
        encoded(noise[..., 0], "JPEG", quality=95),
        encoded(noise[::-1, :, :3], "WEBP", lossless=True),
        Encoded(headrace.encode(noise[..., 1]), "hri", "hri"),
        Encoded(formats.get("raw").encode(noise[..., :2]), "raw", "raw"),
    ]
    assert min(len(file.data) for file in files) > 1 << 16
    samples = [{"left": left, "right": right} for left, right in zip(files, files[1:] + files[:1], strict=True)]
    headrace.build(samples, tmp_path / "a.hr", workers=2, format="hri:fast")
    ds = headrace.open(tmp_path / "a.hr", color="keep")
    for sample, built in zip(samples, ds, strict=True):
        for name in ("left", "right"):
            np.testing.assert_array_equal(built[name], formats.decode(sample[name].data))


@pytest.mark.parametrize("format_name", ["hri:dense", "hri:fast", "png", "raw", "keep"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_depth_and_channels(tmp_path, format_name, dtype, channels):
    image = np.random.default_rng(1).integers(0, np.iinfo(dtype).max, (9, 11, channels)).astype(dtype)
    ds = build_one(tmp_path / "a.hr", {"image": image}, format=format_name)
    np.testing.assert_array_equal(ds[0]["image"], image if channels > 1 else image[:, :, 0])
    _, rendition = ds.read(0, "image")
    assert (rendition.dtype, rendition.channels, rendition.shape[:2]) == (dtype, channels, (9, 11))


def test_masks_keep_their_values_whatever_the_images_format(tmp_path):
    mask = np.arange(48, dtype=np.uint8).reshape(6, 8)
    palette = Image.fromarray(mask).convert("P")
    palette.putpalette([255 - n for n in range(256) for _ in range(3)])
    stream = io.BytesIO()
    palette.save(stream, "PNG")
    labelled = Encoded(stream.getvalue(), "png", "mask.png")
    for format_name, stored in (("keep", "png"), ("hri:fast", "hri:fast"), ("jpeg:90", "hri:dense")):
        dest = tmp_path / stored.replace(":", "-")
        photo = make_image(1)
        samples = IterableSource([{"image": photo, "mask": labelled}], fields={"image": "image", "mask": "mask"})
        headrace.build(samples, dest, format=format_name, workers=1)
        ds = headrace.open(dest)
        assert list(ds.formats["mask"]) == [stored]
        np.testing.assert_array_equal(ds[0]["mask"], np.asarray(palette))
        _, rendition = ds.read(0, "mask")
        assert rendition.shape == mask.shape
        loaded = next(iter(headrace.Loader(dest, batch_size=1, num_workers=1, output="numpy")))
        np.testing.assert_array_equal(loaded["mask"][0], np.asarray(palette))
        assert ds.verify().ok


def test_a_lossy_format_for_masks_is_refused(tmp_path):
    sample = {"image": make_image(1), "mask": np.zeros((4, 4), np.uint8)}
    with pytest.raises(ValueError, match="would change the values of mask 'mask'"):
        headrace.build([sample], tmp_path / "a.hr", mask_format="jpeg:90")
    assert not (tmp_path / "a.hr").exists()


def test_orientation_and_metadata_are_carried_and_not_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = make_image(5, 60)
    turned = encoded(image, "PNG", exif=exif.tobytes(), icc_profile=b"some profile")
    ds = build_one(tmp_path / "a.hr", {"image": turned})
    np.testing.assert_array_equal(ds[0]["image"], image)
    assert ds.column("image.orientation").tolist() == [6]
    metadata = headrace.inspect(ds.read(0, "image")[0]).metadata
    assert metadata["icc"] == b"some profile"
    assert "exif" in metadata


def test_a_plan_mixes_formats_by_key(source, tmp_path):
    shares = [{"format": "raw", "share": 0.5, "decode": "cpu"}, {"format": "hri:fast", "share": 0.5, "decode": "cpu"}]
    plan = {"version": 1, "fields": {"image": {"renditions": 1, "shares": shares}}}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    headrace.build(source, tmp_path / "a.hr", plan=path, workers=1)
    ds = headrace.open(tmp_path / "a.hr")
    for index in range(60):
        wanted = "raw" if hash64(ds.key(index)) < 2**63 else "hri:fast"
        assert ds.read(index, "image")[1].format == wanted
        np.testing.assert_array_equal(ds[index]["image"], make_image(int(ds.key(index)[-8:-4])))
    assert min(ds.formats["image"].values()) > 15
    with pytest.raises(ValueError, match="the plan has a field 'depth'"):
        headrace.build(source, tmp_path / "b.hr", plan={"version": 1, "fields": {"depth": plan["fields"]["image"]}})


@pytest.mark.usefixtures("worker_kind")
def test_bad_samples_stop_the_build_or_are_skipped(tmp_path):
    source = make_folder(tmp_path / "photos", 12)
    whole = (source / "bee" / "0004.png").read_bytes()
    (source / "bee" / "0004.png").write_bytes(whole[: len(whole) // 2])
    (source / "cow" / "0005.png").write_bytes(b"no image at all")
    with pytest.raises(
        BuildError, match=r"sample '(bee/0004|cow/0005)\.png': field 'image': .*finished shards are kept"
    ):
        headrace.build(source, tmp_path / "a.hr", workers=2)
    assert not (tmp_path / "a.hr" / "dataset.json").exists()

    reports = [
        headrace.build(source, tmp_path / f"{workers}.hr", workers=workers, on_error="skip", shard_size=9000)
        for workers in (1, 2)
    ]
    for report in reports:
        assert report.samples == 10
        assert [skipped.key for skipped in report.skipped] == ["bee/0004.png", "cow/0005.png"]
        assert all(skipped.reason for skipped in report.skipped)
    assert tree(tmp_path / "1.hr") == tree(tmp_path / "2.hr")
    manifest = headrace.open(tmp_path / "1.hr").manifest
    assert manifest.skipped_count == 2
    assert [entry["key"] for entry in manifest.skipped] == ["bee/0004.png", "cow/0005.png"]
    assert headrace.open(tmp_path / "1.hr").verify().ok


def test_a_shard_of_nothing_but_bad_samples(tmp_path):
    samples = [{"image": make_image(n) if n else b"\x89PNG\r\n\x1a\n damaged"} for n in (1, 0, 0, 2)]
    headrace.build(samples, tmp_path / "a.hr", workers=1, on_error="skip", shard_size=1)
    ds = headrace.open(tmp_path / "a.hr")
    assert [shard.samples for shard in ds.manifest.shards] == [1, 0, 0, 1]
    assert len(ds) == 2
    assert ds.verify().ok


def test_an_iterable_of_dicts(tmp_path):
    def samples():
        for n in range(40):
            boxes = (np.full((n % 3, 4), n, np.float32), np.arange(n % 3))
            yield {
                "image": make_image(n),
                "boxes": boxes,
                "caption": f"picture {n}",
                "weight": n / 4,
                "__key__": f"k{n}",
            }

    for workers in (1, 3):
        headrace.build(samples(), tmp_path / f"{workers}.hr", workers=workers, shard_size=30_000)
    assert tree(tmp_path / "1.hr") == tree(tmp_path / "3.hr")
    ds = headrace.open(tmp_path / "1.hr")
    assert len(ds.manifest.shards) > 3
    assert dict(ds.fields) == {"image": "image", "boxes": "boxes", "caption": "str", "weight": "float32"}
    for n in range(40):
        sample = ds[n]
        np.testing.assert_array_equal(sample["image"], make_image(n))
        np.testing.assert_array_equal(sample["boxes"].xyxy, np.full((n % 3, 4), n))
        assert (sample["caption"], sample["weight"], ds.key(n)) == (f"picture {n}", n / 4, f"k{n}")


def test_a_dataset_is_a_source_too(source, tmp_path):
    headrace.build(source, tmp_path / "a.hr", workers=1, format="keep")
    headrace.build(headrace.open(tmp_path / "a.hr"), tmp_path / "b.hr", workers=1, format="raw")
    first, second = headrace.open(tmp_path / "a.hr"), headrace.open(tmp_path / "b.hr")
    for index in range(60):
        np.testing.assert_array_equal(first[index]["image"], second[index]["image"])


def test_wrong_options_are_refused_before_anything_is_made(source, tmp_path):
    for options, message in [
        ({"format": "tiff"}, "format: "),
        ({"format": "hri:"}, "format: "),
        ({"mask_format": "bmp"}, "mask_format: "),
        ({"align": 100}, "align must be a power of two"),
        ({"on_error": "ignore"}, "on_error"),
        ({"workers": 0}, "workers"),
        ({"shard_size": 0}, "shard_size"),
        ({"plan": {"version": 3}}, "version 1; got version 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            headrace.build(source, tmp_path / "a.hr", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_progress_that_cannot_be_called_is_refused_before_anything_is_built(source, tmp_path):
    with pytest.raises(TypeError, match="progress must be a function"):
        headrace.build(source, tmp_path / "a.hr", progress=True)
    assert not (tmp_path / "a.hr").exists()


def test_progress_is_reported(source, tmp_path):
    seen = []
    headrace.build(source, tmp_path / "a.hr", workers=1, shard_size=SHARD_SIZE, progress=seen.append)
    assert seen[-1].samples == 60
    assert seen[-1].source_bytes == sum(path.stat().st_size for path in source.rglob("*.png"))
    assert seen[-1].samples_per_second > 0
    assert seen[-1].total_samples in (60, None)


def test_a_script_needs_no_main_guard(source, tmp_path, run_python):
    script = tmp_path / "script.py"
    script.write_text(
        "import headrace\n"
        "from headrace.building import _build\n"
        "_build.PEEK_SAMPLES, _build.THREAD_BYTES = 1, 10**9\n"
        f"print(headrace.build({str(source)!r}, 'out.hr', workers=2).samples)\n"
    )
    assert run_python(script, cwd=tmp_path).stdout.split() == ["60"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_samples(tmp_path, run_python):
    """Four times the samples, through many shards: the peak stays."""
    script = (
        "import sys, resource, numpy as np, headrace\n"
        "image = np.random.default_rng(0).integers(0, 256, (128, 128, 3)).astype(np.uint8)\n"
        "samples = ({'image': image, 'label': n} for n in range(int(sys.argv[1])))\n"
        "headrace.build(samples, sys.argv[2], workers=2, shard_size=4_000_000, verify=False)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    peaks = [int(run_python("-c", script, n, tmp_path / f"{n}.hr").stdout) for n in (500, 2000)]
    assert peaks[1] < peaks[0] + 12_000
