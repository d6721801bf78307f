# SPDX-License-Identifier: Apache-2.0
"""`dataset.json` is checked before it is believed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headrace.errors import CorruptDataset, UnsupportedDataset
from headrace.records import Manifest, verify
from headrace.records.checksum import crc32c, to_hex


@pytest.fixture
def content(path):
    return (path / "dataset.json").read_bytes()


def seal(tree: dict) -> bytes:
    """Write a tree as the file would be, with a right checksum."""
    tree.pop("checksum", None)
    body = json.dumps(tree).removesuffix("}").encode()
    return body + f',\n"checksum":"{to_hex(crc32c(body))}"}}\n'.encode()


def test_it_survives_writing_and_reading(content):
    manifest = Manifest.from_bytes(content)
    assert manifest.to_bytes() == content
    assert manifest.samples == 30
    assert json.loads(content)["fingerprint"] == manifest.fingerprint


def test_every_changed_byte_shows(content):
    for position in range(len(content)):
        for flip in (0x01, 0x20, 0x80):
            damaged = bytearray(content)
            damaged[position] ^= flip
            with pytest.raises(CorruptDataset):
                Manifest.from_bytes(bytes(damaged))


def test_every_truncation_shows(content):
    for length in range(len(content)):
        with pytest.raises(CorruptDataset):
            Manifest.from_bytes(content[:length])


def test_unknown_members_are_ignored_and_other_versions_refused(content):
    tree = json.loads(content)
    assert Manifest.from_bytes(seal({**tree, "new": [1]})).samples == 30
    with pytest.raises(UnsupportedDataset, match="version 9"):
        Manifest.from_bytes(seal({**tree, "version": 9}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("headrace", "image"),
        ("samples", 31),
        ("align", 65),
        ("align", 0),
        ("fields", {"image": {"type": "video"}}),
        ("fields", {"a.b": {"type": "str"}}),
        ("fields", {"image": {"type": "image", "renditions": 9}}),
        ("fields", {"x": {"type": "list<list<list<list<list<str>>>>>"}}),
        ("shards", [{"bytes": -1, "checksum": "", "samples": 1}]),
        ("shards", None),
        ("index", {"bytes": 5, "batches": [30], "block_bytes": 0, "checksums": ""}),
        ("classes", 3),
        ("classes", "abc"),
        ("classes", ["a", 3]),
        ("classes", ["\ud800"]),
        ("samples", 30.0),
        ("samples", True),
        ("samples", 10**40),
        ("align", "64"),
        ("fields", []),
        ("fields", {"image": "image"}),
        ("fields", {"image": {"type": "image", "renditions": 1.5}}),
        ("fields", {"image": {"type": "image", "renditions": True}}),
        ("fields", {"../x": {"type": ["str"]}}),
        ("fields", {f"f{number}": {"type": "str"} for number in range(1025)}),
        ("formats", {"image": {"png": "many"}}),
        ("formats", {"image": 3}),
        ("shards", [{"bytes": 1, "checksum": "../../..", "samples": 30}]),
        ("shards", [{"bytes": 1, "checksum": "00000000", "samples": 29}]),
        ("shards", [{"bytes": 1 << 63, "checksum": "00000000", "samples": 30}]),
        ("index", {"bytes": 5, "batches": [30], "block_bytes": 1 << 62, "checksums": "00000000"}),
        ("index", {"bytes": 5, "batches": [30], "block_bytes": 1 << 20, "checksums": "zzzzzzzz"}),
        ("index", {"bytes": 5, "batches": [30], "block_bytes": 1 << 20, "checksums": ["0"] * 8}),
        ("index", {"bytes": 5, "batches": {"30": 1}, "block_bytes": 1 << 20, "checksums": "00000000"}),
        ("index", [5]),
        ("source", [1]),
        ("source", {"kind": "folder", "name": "x", "samples": 1, "bytes": "many"}),
        ("source", {"kind": ["folder"], "name": "x"}),
        ("options", {"a": json.loads("[" * 50 + "]" * 50)}),
        ("options", {"a": float("nan")}),
        ("options", {"a": float("inf")}),
        ("options", 7),
        ("skipped", {"count": 1, "first": [{"key": 1, "reason": "x"}]}),
        ("skipped", {"count": -1, "first": []}),
        ("skipped", [1]),
        ("writer", {"a": 1}),
    ],
)
def test_nonsense_under_a_right_checksum_is_refused(content, name, value):
    with pytest.raises(CorruptDataset, match=r"spec/dataset\.md"):
        Manifest.from_bytes(seal({**json.loads(content), name: value}))


def test_the_fingerprint_follows_the_content(content):
    manifest = Manifest.from_bytes(content)
    assert replace(manifest, classes=None).fingerprint == manifest.fingerprint
    shard = replace(manifest.shards[0], checksum="00000000")
    assert replace(manifest, shards=(shard, *manifest.shards[1:])).fingerprint != manifest.fingerprint


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_refused(content, opening):
    body = content[: content.rindex(b",\n")] + b',\n"new":' + opening.encode() * 200_000
    forged = body + f',\n"checksum":"{to_hex(crc32c(body))}"}}\n'.encode()
    with pytest.raises(CorruptDataset, match="nested"):
        Manifest.from_bytes(forged)


def test_a_number_of_a_million_digits_is_refused(content):
    body = content[: content.rindex(b",\n")] + b',\n"new":' + b"9" * 1_000_000
    forged = body + f',\n"checksum":"{to_hex(crc32c(body))}"}}\n'.encode()
    with pytest.raises(CorruptDataset, match=r"spec/dataset\.md") as caught:
        Manifest.from_bytes(forged)
    assert len(str(caught.value)) < 1000


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "dataset.json").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(CorruptDataset, match="must have at most"):
        Manifest.load(tmp_path)
    assert "must have at most" in str(verify(tmp_path).problems[0])
