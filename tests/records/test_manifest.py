# SPDX-License-Identifier: Apache-2.0
"""`dataset.json` is checked before it is believed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headrace.errors import CorruptDataset, UnsupportedDataset
from headrace.records import Manifest
from headrace.records._checksum import crc32c, to_hex


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
