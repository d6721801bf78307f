# SPDX-License-Identifier: Apache-2.0
"""Verification finds one changed byte anywhere, and says whose it is."""

from __future__ import annotations

import random
import shutil

import pytest
from tests.records.samples import write

import headrace
from headrace.records import verify


@pytest.fixture
def copy(path, tmp_path):
    return shutil.copytree(path, tmp_path / "copy.hr")


def flip(file, offset, bit=1):
    with file.open("r+b") as stream:
        stream.seek(offset)
        value = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([value ^ bit]))


@pytest.mark.parametrize("workers", [1, 3, None])
def test_an_intact_dataset_is_clean(path, workers):
    report = headrace.open(path).verify(workers=workers)
    assert report.ok
    assert report
    assert report.problems == ()
    assert report.samples == 30
    assert report.n_bytes == sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def test_a_thousand_flips_of_a_thousand_are_found(copy):
    rng = random.Random(2)
    files = sorted(file for file in copy.rglob("*") if file.is_file())
    sizes = [file.stat().st_size for file in files]
    manifest = headrace.open(copy).manifest
    owners = {}
    ds = headrace.open(copy)
    for row in range(len(ds)):
        for field in ("image", "mask"):
            _, rendition = ds.read(row, field)
            owners[rendition.shard, rendition.offset] = (ds.key(row), field, rendition.n_bytes)
    for attempt in range(1000):
        # Half of them by size, half by file: the small files too get their share.
        file = rng.choices(files, sizes)[0] if attempt % 2 else rng.choice(files)
        offset, bit = rng.randrange(file.stat().st_size), 1 << rng.randrange(8)
        flip(file, offset, bit)
        report = verify(copy, workers=1)
        flip(file, offset, bit)
        assert len(report.problems) == 1, (file, offset, bit)
        problem = report.problems[0]
        assert problem.file == str(file.relative_to(copy))
        owner = next(
            (
                own
                for (shard, start), own in owners.items()
                if shard == problem.file and start <= offset < start + own[2]
            ),
            None,
        )
        if owner is not None:
            assert (problem.key, problem.field) == owner[:2]
        elif file.suffix == ".hrs":
            assert problem.offset == offset
        else:
            assert problem.offset <= offset < problem.offset + manifest.index.block_bytes
    assert verify(copy, workers=1).ok


def test_missing_and_cut_files_are_named(copy):
    shard = copy / "shards" / "000002.hrs"
    content = shard.read_bytes()
    shard.unlink()
    report = verify(copy)
    assert [(p.file, p.key) for p in report.problems] == [("shards/000002.hrs", None)]
    assert "7 samples" in report.problems[0].what
    shard.write_bytes(content[:-70])
    report = verify(copy)
    assert {p.key for p in report.problems} == {None, "sample/20"}
    shard.write_bytes(content + b"\0")
    assert [p.offset for p in verify(copy).problems] == [len(content), len(content)]
    shard.write_bytes(b"")
    assert {p.key for p in verify(copy).problems} == {None, *(f"sample/{n}" for n in range(14, 21))}
    (copy / "index.arrow").unlink()
    assert "cannot be read" in str(verify(copy).problems[0])


def test_a_damaged_index_does_not_hide_a_damaged_shard(copy):
    flip(copy / "index.arrow", 900)
    flip(copy / "shards" / "000001.hrs", 5)
    assert [p.file for p in verify(copy).problems] == ["index.arrow", "shards/000001.hrs"]


def test_problems_read_as_sentences(copy):
    flip(copy / "shards" / "000000.hrs", 3)
    assert str(verify(copy).problems[0]).startswith(
        "sample 'sample/0' (row 0), field 'image': shards/000000.hrs, offset 0: damaged between offsets 0 and "
    )


def test_progress_ends_with_all_bytes(path):
    seen = []
    verify(path, workers=2, on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == sum(shard.n_bytes for shard in headrace.open(path).manifest.shards)


def test_alignment_of_pages(tmp_path):
    path = write(tmp_path / "pages.hr", 9, align=4096)
    assert verify(path).ok
    assert all(offset % 4096 == 0 for offset in headrace.open(path).column("image.0.offset"))
    assert all(file.stat().st_size % 4096 == 0 for file in (path / "shards").iterdir())
    _, rendition = headrace.open(path).read(2, "image")
    flip(path / rendition.shard, rendition.offset + rendition.n_bytes)
    (problem,) = verify(path).problems
    assert (problem.offset, problem.what) == (rendition.offset + rendition.n_bytes, "the padding must be zero")
