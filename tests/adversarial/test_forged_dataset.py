# SPDX-License-Identifier: Apache-2.0
"""No dataset, however forged, ends the process, hangs it or makes it take memory without bounds."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.adversarial import forged_index
from tests.records.samples import write

import headrace
from headrace.errors import CorruptDataset, HeadraceError
from headrace.records import Manifest, checksum, verify
from headrace.records.index import ipc
from headrace.records.index.reading import Index
from headrace.records.shards import layout

FORGERIES = 400

TOUCH = """
import os, sys
import headrace
ds = headrace.open(sys.argv[1])
first = ds[0]
for shard in sorted(os.listdir(sys.argv[1] + "/shards")):
    os.truncate(f"{sys.argv[1]}/shards/{shard}", 64)
try:
    ds[0]
except headrace.errors.CorruptDataset as error:
    print(error)
print(len(ds.verify().problems))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("forged") / "thirty.hr")


@pytest.fixture
def copy(path: Path, tmp_path: Path) -> Path:
    return shutil.copytree(path, tmp_path / "copy.hr")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_no_forged_index_ends_the_process(path, tmp_path):
    """Each forgery gives errors of ours, and `verify` none at all; a signal would end the process before it is done."""
    script = Path(forged_index.__file__)
    done = run(script, path, tmp_path / "forged.hr", 0, FORGERIES)

    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}\n{done.stderr[-4000:]}"
    assert done.stdout.splitlines()[-1] == "done"


def rewrite(folder: Path, options: pa.ipc.IpcWriteOptions | None = None, change=lambda table: table) -> None:
    """Write the index again as Arrow writes it with other options or values."""
    table = change(pa.ipc.open_file(pa.OSFile(str(folder / "index.arrow"))).read_all())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    forged_index.seal(folder, sink.getvalue().to_pybytes())


def with_column(name: str, values: pa.Array, *, nullable: bool = False):
    def change(table: pa.Table) -> pa.Table:
        field = pa.field(name, values.type, nullable=nullable)
        return table.set_column(table.schema.get_field_index(name), field, values)

    return change


def assert_refused(folder: Path, match: str) -> None:
    report = verify(folder)
    assert [problem.file for problem in report.problems][:1] == ["index.arrow"]
    assert match in str(report.problems[0])
    with pytest.raises(CorruptDataset, match=match):
        headrace.open(folder)[0]
    with pytest.raises(CorruptDataset, match=match):
        _ = headrace.open(folder).table


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_buffers_are_refused_before_they_are_inflated(copy, compression):
    """A megabyte of index would become gigabytes of names."""
    names = pa.array(["\0" * (1 << 22)] * 30, pa.large_string())
    rewrite(copy, pa.ipc.IpcWriteOptions(compression=compression), with_column("name", names))

    before = pa.total_allocated_bytes()
    assert_refused(copy, "must not be compressed")
    assert pa.total_allocated_bytes() == before


def test_dictionaries_are_refused(copy):
    rewrite(copy, change=with_column("name", pa.array(["a"] * 30).dictionary_encode()))
    assert_refused(copy, "dictionar")


def test_nulls_are_refused(copy):
    rewrite(copy, change=with_column("label", pa.array([None, *range(29)], pa.int64())))
    assert_refused(copy, "no nulls")


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1] * 30, pa.int32()),
        pa.array([1] * 30, pa.uint64()),
        pa.array(["a"] * 30, pa.string()),
        pa.array([[[1]]] * 30, pa.large_list(pa.large_list(pa.int64()))),
        pa.array([{"a": 1}] * 30),
    ],
    ids=lambda values: str(values.type),
)
def test_columns_of_other_types_are_refused(copy, values):
    rewrite(copy, change=with_column("label", values))
    assert_refused(copy, "'label' must have the type 'int64'")


def test_labels_that_are_not_as_many_as_boxes_are_refused(copy):
    labels = pa.array([[1]] * 30, pa.large_list(pa.field("item", pa.int64(), nullable=False)))
    rewrite(copy, change=with_column("boxes.labels", labels))

    with pytest.raises(CorruptDataset, match="as many labels as boxes"):
        headrace.open(copy).value(0, "boxes")
    assert "as many labels as boxes" in str(verify(copy).problems[0])


@pytest.mark.parametrize(
    ("part", "value"), [("height", 0), ("height", 1 << 24), ("width", 70_000), ("channels", 65), ("dtype", 9)]
)
def test_sizes_that_no_image_has_are_reported(copy, part, value):
    def change(table: pa.Table) -> pa.Table:
        number = table.schema.get_field_index(f"image.0.{part}")
        values = table.column(number).to_pylist()
        values[4] = value
        return table.set_column(number, table.schema.field(number), pa.array(values, table.schema.field(number).type))

    rewrite(copy, change=change)
    assert f"row 4: 'image' must have a {part}" in str(verify(copy).problems[0])


def test_an_index_whose_tables_form_a_ring_is_refused():
    """A flatbuffer may point at itself; nothing is followed deeper than the columns that are expected."""
    footer = bytearray(64)
    footer[0:4] = (16).to_bytes(4, "little")
    footer[16:20] = (8).to_bytes(4, "little")  # the table's entries are at 8
    footer[8:16] = (8).to_bytes(2, "little") + (8).to_bytes(2, "little") + bytes(2) + (4).to_bytes(2, "little")
    content = b"ARROW1\0\0" + bytes(64) + bytes(footer) + (64).to_bytes(4, "little") + b"ARROW1"
    view = memoryview(content)

    with pytest.raises(ValueError, match="columns are not those"):
        ipc.read_footer(lambda offset, n: view[offset : offset + n], len(content), [("key", "str")])


def test_a_shard_that_is_cut_short_while_it_is_open_is_an_error(copy):
    """Through a mapped file this would be SIGBUS."""
    done = run("-c", TOUCH, copy)

    assert done.returncode == 0, done.stderr
    assert "truncated" in done.stdout
    assert int(done.stdout.splitlines()[-1]) > 0


def test_a_shard_that_is_cut_short_while_it_is_verified_is_reported(path, monkeypatch):
    """Its size is right when it is opened, and then bytes are missing."""
    shard = headrace.open(path).manifest.shards[0]
    monkeypatch.setattr(checksum, "read_at", lambda *_: 0)
    found = layout.check_shard(path / "shards/000000.hrs", shard, None, 64)
    assert "truncated at offset 0" in found[0].what


@pytest.mark.parametrize("name", ["dataset.json", "index.arrow", "shards/000001.hrs"])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(copy, name, kind, monkeypatch):
    (copy / name).unlink()
    if kind == "fifo":
        os.mkfifo(copy / name)
    elif kind == "socket":
        monkeypatch.chdir(copy)  # the path of a socket must be short
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(name)
    elif kind == "device":
        (copy / name).symlink_to("/dev/zero")
    else:
        (copy / name).mkdir()

    assert not verify(copy).ok
    with pytest.raises(HeadraceError, match="regular file"):
        headrace.open(copy)[8]


@pytest.mark.parametrize("name", ["index.arrow", "shards/000001.hrs"])
def test_bytes_beyond_the_end_of_a_file_are_not_read(copy, name):
    """A hole of many terabytes costs nothing on disk, and would take hours to read."""
    os.truncate(copy / name, 1 << 43)

    assert any("must have" in problem.what for problem in verify(copy).problems)
    with pytest.raises(CorruptDataset, match="must have"):
        headrace.open(copy)[8]


def test_a_mapped_index_and_one_that_is_read_agree(path):
    manifest = Manifest.load(path)
    mapped, read = Index(path, manifest), Index(path, manifest, mapped=False)
    for number in range(len(manifest.index.batches)):
        assert mapped.record_batch(number).equals(read.record_batch(number, validate=True))
    assert np.array_equal(mapped.locate(29)[0].values["boxes"][29].xyxy, read.locate(29)[0].values["boxes"][29].xyxy)
