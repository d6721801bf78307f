# SPDX-License-Identifier: Apache-2.0
"""WebDataset archives, honest and hostile."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import tarfile
import tracemalloc

import numpy as np
import pytest
from tests.sources.pictures import damaged, decoded, keys, pixels, png, samples, write_tar

from headrace.errors import BadSource
from headrace.sources import WebDatasetSource
from headrace.sources import _tar as tar


def members(start, count):
    for number in range(start, start + count):
        yield f"train/{number:03d}.png", png(number)
        yield f"train/{number:03d}.seg.png", png(number, channels=1)
        yield f"train/{number:03d}.cls", str(number % 3).encode()
        yield f"train/{number:03d}.json", b'{"a": 1}'
        yield f"train/{number:03d}.bin", b"\0\1"


@pytest.mark.parametrize(("suffix", "mode"), [(".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz")])
def test_samples_come_in_the_order_of_the_archives(tmp_path, suffix, mode):
    """With every field as its type, plain and compressed."""
    paths = [tmp_path / f"{shard}{suffix}" for shard in range(2)]
    for shard, path in enumerate(paths):
        write_tar(path, members(5 * shard, 5), mode)
    source = WebDatasetSource(paths)
    found = samples(source)

    assert source.fields == {"image": "image", "seg": "mask", "label": "int64", "json": "str", "bin": "bytes"}
    assert keys(source) == [f"{number // 5}{suffix}/train/{number:03d}" for number in range(10)]
    for number, sample in enumerate(found):
        assert np.array_equal(decoded(sample["image"]), pixels(number))
        assert np.array_equal(decoded(sample["seg"]), pixels(number, channels=1))
        assert (sample["label"], sample["json"], sample["bin"]) == (number % 3, '{"a": 1}', b"\0\1")


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_items_load_in_any_order_and_in_copies(tmp_path, mode):
    """Backward too, in a pickled copy."""
    path = tmp_path / ("a.tar" if mode == "w" else "a.tar.gz")
    write_tar(path, members(0, 6), mode)
    original = WebDatasetSource([path])
    source, items = pickle.loads(pickle.dumps((original, list(original.items()))))
    random.Random(0).shuffle(items)

    assert [source.load(item)["label"] for item in items] == [int(item.key[-3:]) % 3 for item in items]


def test_long_names_and_folders(tmp_path):
    """Extended headers of both kinds, and folder members, which are not samples."""
    for number, kind in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        path = tmp_path / f"{number}.tar"
        with tarfile.open(path, "w", format=kind) as archive:
            folder = tarfile.TarInfo("d" * 150)
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
            header = tarfile.TarInfo(f"{'d' * 150}/{'é' * 60}.png")
            header.size = len(png(0))
            archive.addfile(header, io.BytesIO(png(0)))
        assert keys(WebDatasetSource([path])) == [f"{number}.tar/{'d' * 150}/{'é' * 60}"]


def test_descriptions_of_the_archive_are_no_samples(tmp_path):
    """Members such as __meta__.json, and names without a dot or a stem."""
    write_tar(tmp_path / "a.tar", [("__meta__/x.json", b""), ("README", b""), (".hidden", b""), ("0.png", png(0))])

    assert keys(WebDatasetSource([tmp_path / "a.tar"])) == ["a.tar/0"]


def special(name, kind, link=""):
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, link
    return header


@pytest.mark.parametrize(
    "member",
    [
        ("../0.png", b"x"),
        ("a/../../0.png", b"x"),
        ("/etc/0.png", b"x"),
        ("C:/0.png", b"x"),
        ("a\\..\\0.png", b"x"),
        special("0.png", tarfile.SYMTYPE, "/etc/passwd"),
        special("0.png", tarfile.LNKTYPE, "1.png"),
        special("0.png", tarfile.CHRTYPE),
        special("0.png", tarfile.BLKTYPE),
        special("0.png", tarfile.FIFOTYPE),
    ],
    ids=["up", "up inside", "absolute", "drive", "backslash", "symlink", "hard link", "char", "block", "pipe"],
)
def test_hostile_members_are_refused(tmp_path, member):
    """First in the archive, and after an honest sample."""
    write_tar(tmp_path / "a.tar", [member])
    with pytest.raises(BadSource):
        WebDatasetSource([tmp_path / "a.tar"])
    write_tar(tmp_path / "b.tar", [("0.png", png(0)), ("1.png", png(1)), member])
    with pytest.raises(BadSource):
        samples(WebDatasetSource([tmp_path / "b.tar"]))


def lying_header(n_bytes, name="1.png"):
    header = tarfile.TarInfo(name)
    header.size = n_bytes
    return header.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("n_bytes", [10_000, 2**31, 2**40], ids=["short", "too large", "far too large"])
def test_a_member_that_lies_about_its_size_is_refused(tmp_path, n_bytes):
    """It reaches beyond the archive, or beyond any image."""
    honest = io.BytesIO()
    with tarfile.open(fileobj=honest, mode="w") as archive:
        header = tarfile.TarInfo("0.png")
        header.size = len(png(0))
        archive.addfile(header, io.BytesIO(png(0)))
        end = archive.offset
    contents = honest.getvalue()[:end] + lying_header(n_bytes) + b"x" * 512
    for name, data in (("a.tar", contents), ("a.tar.gz", gzip.compress(contents))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadSource):
            samples(WebDatasetSource([tmp_path / name]))


def test_a_huge_extended_header_is_not_read(tmp_path):
    """A name of gigabytes is an attack; it costs no memory."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**32
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + b"a" * 4096)
    tracemalloc.start()
    with pytest.raises(BadSource, match="must have at most"):
        WebDatasetSource([tmp_path / "a.tar"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 2_000_000


def test_a_compressed_bomb_is_refused(tmp_path, monkeypatch):
    """An archive that unpacks to far more than it holds."""
    monkeypatch.setattr(tar, "_MIN_LIMIT", 2**20)
    write_tar(tmp_path / "a.tar.gz", [("0.png", png(0)), ("1.png", bytes(2**24))], "w:gz")
    with pytest.raises(BadSource, match="bomb"):
        samples(WebDatasetSource([tmp_path / "a.tar.gz"]))


def test_damaged_archives_are_named(tmp_path):
    """Truncations and flipped bytes raise, or lose nothing in silence: never another exception."""
    write_tar(tmp_path / "whole.tar", members(0, 3))
    path = tmp_path / "damaged.tar"
    messages = []
    for contents in damaged((tmp_path / "whole.tar").read_bytes(), 150):
        path.write_bytes(contents)
        try:
            samples(WebDatasetSource([path]))
        except BadSource as error:
            messages.append(str(error))

    assert len(messages) > 10
    assert all("damaged.tar" in message for message in messages)


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    """Losing the samples behind it would be silent."""
    write_tar(tmp_path / "a.tar", [("0.png", png(0)), ("1.png", png(1)), ("2.png", png(2))])
    contents = bytearray((tmp_path / "a.tar").read_bytes())
    contents[contents.index(b"1.png")] ^= 1
    (tmp_path / "a.tar").write_bytes(contents)
    with pytest.raises(BadSource, match="damaged header"):
        samples(WebDatasetSource([tmp_path / "a.tar"]))


@pytest.mark.parametrize(
    ("second", "what"),
    [
        ([("1.png", b"")], "has no label"),
        ([("1.png", b""), ("1.cls", b"1"), ("1.txt", b"")], "first sample does not have"),
        ([("1.png", b"x"), ("1.cls", b"cat")], "must be int64"),
        ([("1.png", b"x"), ("1.cls", b"9" * 30)], "64 bits"),
        ([("1.png", b"x"), ("1.cls", b"1"), ("1.cls", b"2")], "first sample does not have"),
        ([("1.png", b""), ("1.cls", b"1")], "empty"),
    ],
)
def test_samples_that_differ_from_the_first_are_named(tmp_path, second, what):
    """A field that is missing, extra, double or of another type."""
    second = [(name, png(1) if contents == b"x" else contents) for name, contents in second]
    if what in ("has no label", "first sample does not have"):
        second = [(name, contents or png(1)) for name, contents in second]
    write_tar(tmp_path / "a.tar", [("0.png", png(0)), ("0.cls", b"0"), *second])
    source = WebDatasetSource([tmp_path / "a.tar"])
    first, item = source.items()

    assert source.load(first)["label"] == 0
    with pytest.raises(BadSource, match=what):
        source.load(item)


@pytest.mark.parametrize("contents", [[], [("0.cls", b"1")], [("0.png", b"1"), ("0.jpg", b"1")]])
def test_a_first_sample_without_one_image_is_refused(tmp_path, contents):
    """None at all, no image, or two of them for one field."""
    write_tar(tmp_path / "a.tar", contents)
    with pytest.raises(BadSource):
        WebDatasetSource([tmp_path / "a.tar"])


def test_listing_streams(tmp_path):
    """Ten thousand members are not held."""
    write_tar(tmp_path / "a.tar", ((f"{number:05d}.png", b"x") for number in range(10_000)))
    source = WebDatasetSource([tmp_path / "a.tar"])
    tracemalloc.start()
    count = sum(1 for _ in source.items())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 10_000
    assert peak < 2_000_000
