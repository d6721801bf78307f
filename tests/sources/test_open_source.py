# SPDX-License-Identifier: Apache-2.0
"""Which kind of source is at a path."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.pictures import keys, pixels, png, samples, write, write_coco, write_tar

from headrace import formats
from headrace.cli.build import Kind
from headrace.errors import BadSource
from headrace.sources import KINDS, open_source


def write_parquet(path):
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"image": [{"bytes": png(0), "path": None}]}), path)


def test_each_kind_is_recognised(tmp_path):
    """From names alone."""
    write(tmp_path / "folder", {"a.png": png(0), "sub/b.png": png(1)})
    write(tmp_path / "single", {"images/a.png": png(0)})
    write(tmp_path / "classes", {"cat/a.png": png(0), "dog/b.png": png(1), "empty.txt": b""})
    (tmp_path / "tars").mkdir()
    write_tar(tmp_path / "tars" / "b.tar", [("0.png", png(0))])
    write_tar(tmp_path / "tars" / "a.tar", [("1.png", png(1))])
    write_parquet(tmp_path / "parquet" / "x.parquet")
    write_parquet(tmp_path / "hub" / "data" / "train-0.parquet")
    coco = write_coco(tmp_path / "coco", [1], [])
    write(tmp_path / "city", {"leftImg8bit/train/ulm/0_leftImg8bit.png": png(0)})
    write(tmp_path / "city", {"gtFine/train/ulm/0_gtFine_labelIds.png": png(0)})
    expected = {
        "folder": "folder",
        "single": "folder",
        "classes": "classes",
        "tars": "webdataset",
        "tars/a.tar": "webdataset",
        "tars/*.tar": "webdataset",
        "parquet": "parquet",
        "parquet/x.parquet": "parquet",
        "hub": "parquet",
        "coco": "coco",
        str(coco.relative_to(tmp_path)): "coco",
        "city": "cityscapes",
    }
    for path, kind in expected.items():
        source = open_source(str(tmp_path / path))
        assert source.kind == kind, path
        assert len(samples(source)) > 0
    assert keys(open_source(tmp_path / "tars")) == ["a.tar/1", "b.tar/0"]
    assert open_source([{"image": pixels(0)}]).kind == "iterable"


def test_a_kind_can_be_asked_for(tmp_path):
    """And is then not guessed."""
    write(tmp_path, {"cat/a.png": png(0), "dog/b.png": png(1)})

    assert open_source(tmp_path, "folder").kind == "folder"
    assert open_source(tmp_path).kind == "classes"


def test_an_unknown_folder_is_reported_with_what_was_looked_for(tmp_path):
    """All of it, in order."""
    write(tmp_path, {"notes.txt": b"", "sub/more.txt": b""})
    with pytest.raises(BadSource, match=r"leftImg8bit.*instances_.*\.tar.*\.parquet.*images"):
        open_source(tmp_path)


def test_splits_are_not_taken_for_classes(tmp_path):
    """A label that says train or val would be nonsense."""
    write(tmp_path, {"train/cat/a.png": png(0), "val/cat/b.png": png(1)})
    source = open_source(tmp_path)

    assert source.fields == {"image": "image", "split": "str"}
    assert keys(source) == ["train/cat/a.png", "val/cat/b.png"]
    assert open_source(tmp_path / "train").kind == "folder"


def test_two_annotation_files_need_a_choice(tmp_path):
    """The message names both."""
    write_coco(tmp_path, [1], [])
    write_coco(tmp_path, [1], [], name="instances_val2017.json")
    with pytest.raises(BadSource, match=r"train2017\.json.*val2017\.json"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("source", "kind"),
    [("missing", "auto"), ("missing/*.tar", "auto"), (".", "zip"), (5, "auto"), ([], "folder"), (".", "iterable"),
     ("missing", "coco"), ("missing", "cityscapes"), ("missing", "classes")],
)  # fmt: skip
def test_what_is_no_source_is_refused(tmp_path, source, kind):
    """With a message, not a traceback from deep inside."""
    with pytest.raises(BadSource):
        open_source(str(tmp_path / source) if isinstance(source, str) else source, kind)


def test_every_kind_is_listed():
    """The command line offers them."""
    assert KINDS[0] == "auto"
    assert len(set(KINDS)) == 16
    assert {*get_args(Kind)} == {*KINDS} - {"iterable"}


def test_orientation_of_an_image_is_upright_unless_it_says_so(tmp_path):
    """Most say nothing."""
    write(tmp_path, {"a.png": png(0)})

    assert formats.orientation(samples(open_source(tmp_path))[0]["image"].data) == 1


def test_importing_sources_imports_no_library():
    """Pillow and pyarrow come when they are needed."""
    code = "import sys, headrace.sources; print({'PIL', 'pyarrow', 'imagecodecs'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("s-{000..002}.tar", ["s-000", "s-001", "s-002"]),
        ("s-{2..0}.tar", ["s-2", "s-1", "s-0"]),
        ("s-{8..11}.tar", ["s-8", "s-9", "s-10", "s-11"]),
        ("{b,a}.tar", ["b", "a"]),
        ("{a,b}-{0..1}.tar", ["a-0", "a-1", "b-0", "b-1"]),
        ("{a,b}-*.tar", ["a-0", "a-1", "b-0"]),
    ],
)
def test_braces_stand_for_several_files(tmp_path, pattern, names):
    """As a shell, and WebDataset's own loader, read them; in their order."""
    for name in names:
        write_tar(tmp_path / f"{name}.tar", [("0.png", png(0))])
    assert keys(open_source(tmp_path / pattern)) == [f"{name}.tar/0" for name in names]


def test_braces_name_the_file_that_is_missing(tmp_path):
    """Not all that was asked for is there."""
    write_tar(tmp_path / "s-0.tar", [("0.png", png(0))])
    with pytest.raises(BadSource, match=r"s-1\.tar does not exist"):
        open_source(tmp_path / "s-{0..1}.tar")
    with pytest.raises(BadSource, match="stands for more"):
        open_source(tmp_path / "s-{0..99999999}.tar")


def test_braces_in_a_name_are_a_name(tmp_path):
    """A file that is there is taken as it is called."""
    write_tar(tmp_path / "s-{0..1}.tar", [("0.png", png(0))])
    assert keys(open_source(tmp_path / "s-{0..1}.tar")) == ["s-{0..1}.tar/0"]
