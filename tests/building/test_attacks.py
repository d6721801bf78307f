# SPDX-License-Identifier: Apache-2.0
"""Damaged and forged sources: each importer names the sample, `skip` skips it, and nothing else is ever raised."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.pictures import pixels, png, write, write_coco, write_tar

import headrace
from headrace.errors import HeadraceError

DOG = {"id": 1, "image_id": 1, "category_id": 7, "bbox": [0, 0, 2, 2], "area": 4, "iscrowd": 0, "segmentation": []}


def member(name, kind=tarfile.REGTYPE, **fields):
    header = tarfile.TarInfo(name)
    header.type = kind
    for field, value in fields.items():
        setattr(header, field, value)
    return header


def write_sparse(path):
    """An honest sample, then a sparse file of GNU's, as `tar --sparse` writes it."""
    data = png(0)
    header = tarfile.TarInfo("1.png")
    header.size = len(data)
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[156:157] = b"S"
    block[386:410] = b"%011o\0%011o\0" % (0, len(data))
    block[483:495] = b"%011o\0" % len(data)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    write_tar(path, [("0.png", png(0))])
    whole = path.read_bytes()
    end = 512 + -(-len(png(0)) // 512) * 512
    path.write_bytes(whole[:end] + bytes(block) + data.ljust(-(-len(data) // 512) * 512, b"\0") + bytes(1024))


def folder_attacks(root):
    """Each a name, and what is done to a folder that holds one good image."""
    return {
        "link to itself": lambda: (root / "b.png").symlink_to(root / "b.png"),
        "link to nothing": lambda: (root / "b.png").symlink_to(root / "nowhere"),
        "link out": lambda: (root / "b.png").symlink_to("/etc/hostname"),
        "link to a folder": lambda: (root / "b.png").symlink_to("."),
        "folder link to itself": lambda: (root / "b").symlink_to("b"),
        "pipe": lambda: os.mkfifo(root / "b.png"),
        "name that is not UTF-8": lambda: (root / os.fsdecode(b"\xff\xfe.png")).write_bytes(png(1)),
        "folder that is not UTF-8": lambda: write(root / os.fsdecode(b"\xff"), {"b.png": png(1)}),
        "empty": lambda: (root / "b.png").write_bytes(b""),
        "text": lambda: (root / "b.png").write_bytes(b"hello"),
        "half": lambda: (root / "b.png").write_bytes(png(1)[:60]),
        "npy of objects": lambda: np.save(root / "b.npy", np.array([{}]), allow_pickle=True),
        "npy of floats": lambda: np.save(root / "b.npy", np.zeros((3, 4))),
        "npy that claims too much": lambda: (root / "b.npy").write_bytes(
            b"\x93NUMPY\x01\x00v\x00"
            + b"{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776, 4), }".ljust(117)
            + b"\n"
        ),
        "tiff without pages": lambda: (root / "b.tif").write_bytes(b"II*\0\0\0\0\0"),
        "tiff in a circle": lambda: (root / "b.tif").write_bytes(b"II*\0\x08\0\0\0\0\0\x08\0\0\0"),
        "tiff of many entries": lambda: (root / "b.tif").write_bytes(b"II*\0\x08\0\0\0\xff\xff"),
        "avif": lambda: (root / "b.avif").write_bytes(b"\0\0\0\x20ftypavif" + bytes(100)),
        "jp2": lambda: (root / "b.jp2").write_bytes(b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(100)),
        "jxl": lambda: (root / "b.jxl").write_bytes(b"\xff\x0a" + bytes(100)),
        "gif": lambda: (root / "b.gif").write_bytes(b"GIF89a" + bytes(10)),
        "png that is a pcx": lambda: (root / "b.png").write_bytes(b"\x0a\x05\x01\x08" + bytes(130)),
    }


FOLDER_ATTACKS = list(folder_attacks(None))


def build_both_ways(source, tmp_path, name, **options):
    """Without `skip` an error names the sample; with it the others are built."""
    with pytest.raises(HeadraceError, match=name):
        headrace.build(source, tmp_path / "raise.hr", workers=1, **options)
    assert not (tmp_path / "raise.hr" / "dataset.json").exists()
    report = headrace.build(source, tmp_path / "skip.hr", workers=1, on_error="skip", **options)
    assert headrace.open(tmp_path / "skip.hr").verify().ok
    assert all(skipped.reason for skipped in report.skipped)
    return report


@pytest.mark.parametrize("attack", FOLDER_ATTACKS)
def test_folders(tmp_path, attack):
    root = tmp_path / "root"
    write(root, {"a.png": png(0)})
    try:
        folder_attacks(root)[attack]()
    except OSError:
        pytest.skip("this file system refuses such names itself")
    if attack == "folder link to itself":
        report = headrace.build(root, tmp_path / "a.hr", kind="folder", workers=1)
        assert report.ignored == ("1 without suffix (such as b)",)
        return
    report = build_both_ways(root, tmp_path, r"sample '.*(b|xff)", kind="folder")
    assert (report.samples, report.skipped_count) == (1, 1)


TAR_ATTACKS = {
    "link": [member("1.png", tarfile.SYMTYPE, linkname="/etc/passwd")],
    "link to itself": [member("1.png", tarfile.LNKTYPE, linkname="1.png")],
    "device": [member("1.png", tarfile.CHRTYPE)],
    "up": [("../1.png", png(1))],
    "absolute": [("/1.png", png(1))],
    "surrogate": [("1\udcff.png", png(1))],
    "text for a number": [("1.png", png(1)), ("1.cls", b"many")],
    "huge number": [("1.png", png(1)), ("1.cls", b"9" * 5000)],
    "damaged image": [("1.png", b"\x89PNG\r\n\x1a\n" + bytes(40))],
    "no image": [("1.cls", b"1")],
    "too many files": [(f"1.{n}.txt", b"") for n in range(300)],
}


@pytest.mark.parametrize("attack", TAR_ATTACKS)
@pytest.mark.parametrize("first", [False, True])
def test_tars(tmp_path, attack, first):
    good = [("0.png", png(0)), ("0.cls", b"3")] if "number" in attack else [("0.png", png(0))]
    members = [*TAR_ATTACKS[attack], *good] if first else [*good, *TAR_ATTACKS[attack]]
    write_tar(tmp_path / "a.tar", members)
    if first and attack == "no image":
        with pytest.raises(HeadraceError, match="no image"):
            headrace.build(tmp_path / "a.tar", tmp_path / "a.hr", workers=1, on_error="skip")
        return
    report = build_both_ways(tmp_path / "a.tar", tmp_path, "a.tar")
    assert (report.samples, report.skipped_count) == (1, 1)


def test_a_sparse_member(tmp_path):
    write_sparse(tmp_path / "a.tar")
    report = build_both_ways(tmp_path / "a.tar", tmp_path, "sparse")
    assert (report.samples, report.skipped_count) == (1, 1)


def test_a_damaged_archive_does_not_cost_the_others(tmp_path):
    for name in "abc":
        write_tar(tmp_path / f"{name}.tar", [(f"{n}.png", png(n)) for n in range(4)])
    whole = bytearray((tmp_path / "a.tar").read_bytes())
    whole[1024:1100] = b"\xff" * 76  # the second header
    (tmp_path / "a.tar").write_bytes(whole)
    (tmp_path / "b.tar").write_bytes(b"")
    report = build_both_ways(tmp_path / "*.tar", tmp_path, r"a\.tar")
    assert report.samples >= 4
    assert {skipped.key for skipped in report.skipped} <= {"a.tar", "b.tar"}


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "a,b"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "1.png", "GNU.sparse.realsize": "x"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9" * 5000},
        {"size": "-5"},
        {"path": "a\0b.png"},
    ],
    ids=range(5),
)
def test_forged_pax_headers(tmp_path, headers):
    """What stands before them is kept."""
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for name, forged in (("0.png", {}), ("1.png", headers)):
            header = member(name, size=len(png(0)), pax_headers=forged)
            archive.addfile(header, io.BytesIO(png(0)))
    report = headrace.build(tmp_path / "a.tar", tmp_path / "a.hr", workers=1, on_error="skip")
    assert headrace.open(tmp_path / "a.hr").key(0) == "a.tar/0"
    assert (report.samples, report.skipped_count >= 1) in ((1, True), (2, False))


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.parquet", "instances_a.json", "a.png"])
def test_pipes_are_not_waited_for(tmp_path, name):
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in" / name)
    for source in (tmp_path / "in" / name, tmp_path / "in"):
        with pytest.raises(HeadraceError):
            headrace.build(source, tmp_path / "a.hr", workers=1)


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_flipped_bytes_raise_nothing_else(tmp_path, kind):
    """Three hundred mutations; whatever they break, it is an error of ours or a skipped sample."""
    path = tmp_path / f"a.{kind}"
    if kind == "tar":
        write_tar(path, [(f"{n}.{end}", data) for n in range(5) for end, data in (("png", png(n)), ("cls", b"1"))])
    else:
        write_parquet(path)
    whole = path.read_bytes()
    rng = random.Random(kind)
    for number in range(300):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 3, 20))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])
        try:
            report = headrace.build(path, tmp_path / f"{number}.hr", workers=1, on_error="skip", verify=False)
        except HeadraceError:
            continue
        assert report.samples + report.skipped_count >= 1


def write_parquet(path, rows=20, **columns):
    images = [{"bytes": png(n), "path": None} for n in range(rows)]
    pq.write_table(
        pa.table({"image": images, "text": [f"{n}" for n in range(rows)], **columns}), path, row_group_size=5
    )


def test_a_damaged_page_shifts_no_other_rows(tmp_path):
    """The rows that can still be read keep their own text."""
    path = tmp_path / "a.parquet"
    images = [{"bytes": png(n) * 50, "path": None} for n in range(64)]
    table = pa.table({"image": images, "n": list(range(64))})
    pq.write_table(table, path, compression="none", data_page_size=4096, use_dictionary=False, write_batch_size=4)
    whole = path.read_bytes()
    rng = random.Random(0)
    damaged = 0
    for number in range(40):
        data = bytearray(whole)
        at = rng.randrange(len(data) // 4, len(data) // 2)
        data[at : at + 400] = bytes(400)
        path.write_bytes(data)
        try:
            report = headrace.build(path, tmp_path / f"{number}.hr", workers=1, on_error="skip", verify=False)
        except HeadraceError:
            continue
        damaged += bool(report.skipped_count)
        ds = headrace.open(tmp_path / f"{number}.hr")
        for index in range(len(ds)):
            assert ds.value(index, "n") == int(ds.key(index)[-9:])
    assert damaged


PARQUET_ATTACKS = {
    "empty file": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"PAR1 hello PAR1"),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "no footer": lambda path: path.write_bytes(path.read_bytes()[:-4] + b"XXXX"),
    "huge footer": lambda path: path.write_bytes(path.read_bytes()[:-8] + struct.pack("<I", 2**31) + b"PAR1"),
    "other columns": lambda path: pq.write_table(pa.table({"x": [1]}), path),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("attack", PARQUET_ATTACKS)
@pytest.mark.parametrize("name", ["a.parquet", "b.parquet"])
def test_damaged_parquet_files_do_not_cost_the_others(tmp_path, attack, name):
    for each in ("a.parquet", "b.parquet", "c.parquet"):
        write_parquet(tmp_path / each, 5)
    PARQUET_ATTACKS[attack](tmp_path / name)
    if attack == "other columns" and name == "a.parquet":
        with pytest.raises(HeadraceError, match="no image column"):
            headrace.build(tmp_path / "*.parquet", tmp_path / "a.hr", on_error="skip")
        return
    report = build_both_ways(tmp_path / "*.parquet", tmp_path, name)
    assert (report.samples, [skipped.key for skipped in report.skipped]) == (10, [name])


@pytest.mark.parametrize(
    "change",
    [
        {"id": 1e999},
        {"id": 10**400},
        {"area": 10**400},
        {"area": float("nan")},
        {"area": -1e308},
        {"iscrowd": 1e999},
        {"iscrowd": 10**30},
        {"bbox": [10**400, 0, 1, 1]},
        {"bbox": [0, 0, 1e308, 1e308]},
        {"bbox": [1e308, 0, 1e308, 1]},
        {"bbox": "abcd"},
        {"bbox": {"x": 1}},
        {"category_id": 10**400},
        {"category_id": None},
    ],
    ids=str,
)
def test_coco_annotations(tmp_path, change):
    write_coco(tmp_path / "coco", [1, 2], [{**DOG, **change}])
    report = build_both_ways(tmp_path / "coco", tmp_path, r"1\.png|forged|instances")
    assert (report.samples, report.skipped_count) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"images": [{"id": 1' + "0" * 5000 + "}]}",
        '{"images": [{"id": 1e3, "file_name": "a"}], "annotations": [], "categories": []}',
        '{"images": [{"id": 9223372036854775808, "file_name": "a"}], "annotations": [], "categories": []}',
        '{"images": {}, "annotations": [], "categories": []}',
        '{"images": [{"id": 1, "file_name": "\\ud800.png"}], "annotations": [], "categories": []}',
        '{"images": [{"id": 1, "file_name": "\\u0000.png"}], "annotations": [], "categories": []}',
        '{"images": [{"id": 1, "file_name": "%s"}], "annotations": [], "categories": []}' % ("x" * 5000),
        "\xff",
    ],
    ids=range(9),
)
def test_coco_files(tmp_path, text):
    write(tmp_path / "coco", {"annotations/instances_x.json": text.encode("latin-1")})
    with pytest.raises(HeadraceError, match="instances_x"):
        headrace.build(tmp_path / "coco", tmp_path / "a.hr")


def test_coco_names_that_no_file_has(tmp_path):
    path = write_coco(tmp_path / "coco", [1, 2, 3, 4], [])
    tree = json.loads(path.read_text())
    for number, name in enumerate(("\ud800.png", "\0.png", "x" * 5000), 1):
        tree["images"][number]["file_name"] = name
    path.write_text(json.dumps(tree))
    report = build_both_ways(tmp_path / "coco", tmp_path, "instances|File name too long")
    assert (report.samples, report.skipped_count) == (1, 3)


@pytest.mark.parametrize(
    "bad",
    [
        {"image": pixels(1).astype(np.float64), "label": 1},
        {"image": np.empty((0, 4), np.uint8), "label": 1},
        {"image": b"\x89PNG\r\n\x1a\n", "label": 1},
        {"image": None, "label": 1},
        {"image": pixels(1), "label": "x"},
        {"image": pixels(1), "label": 10**30},
        {"image": pixels(1)},
        {"image": pixels(1), "label": object()},
    ],
    ids=range(8),
)
def test_iterables(tmp_path, bad):
    samples = [{"image": pixels(0), "label": 0}, bad, {"image": pixels(2), "label": 2}]
    report = build_both_ways(samples, tmp_path, "sample '000000001'")
    assert (report.samples, report.skipped_count) == (2, 1)


def test_an_iterable_that_raises_is_reported_with_the_sample_before(tmp_path):
    def samples():
        yield {"image": pixels(0)}
        raise KeyError("gone")

    with pytest.raises(HeadraceError, match=r"after sample '000000000': KeyError"):
        headrace.build(samples(), tmp_path / "a.hr", workers=1)


def test_cityscapes_and_pairs(tmp_path):
    """A partner that is missing costs its own sample."""
    write(tmp_path / "city", {f"leftImg8bit/train/ulm/{n}_leftImg8bit.png": png(n) for n in range(3)})
    write(tmp_path / "city", {f"gtFine/train/ulm/{n}_gtFine_labelIds.png": png(n, channels=1) for n in (0, 3)})
    report = build_both_ways(tmp_path / "city", tmp_path, "label map|no image")
    assert (report.samples, report.skipped_count) == (1, 3)
    write(tmp_path / "pairs", {f"images/{n}.png": png(n) for n in range(3)})
    write(tmp_path / "pairs", {f"masks/{n}.png": png(n, channels=1) for n in (0, 3)})
    (tmp_path / "pairs").rename(tmp_path / "more")
    (tmp_path / "sub").mkdir()
    report = build_both_ways(tmp_path / "more", tmp_path / "sub", "no mask|without an image")
    assert (report.samples, report.skipped_count) == (1, 3)


def test_the_error_names_the_option(tmp_path):
    write(tmp_path / "root", {"a.png": png(0), "b.png": b"x"})
    with pytest.raises(HeadraceError, match=r"--on-error skip \(on_error='skip'\)"):
        headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1)
