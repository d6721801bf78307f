# SPDX-License-Identifier: Apache-2.0
"""File names, keys and metadata reach the terminal as text, and can neither command it nor be taken for markup."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import headrace
from headrace.terminal import printable

EVIL = "\x1b[31m\r\x9b2J\u202e[/bold] [link=x]"
IMAGE = np.zeros((20, 30, 3), np.uint8)


def assert_safe(text: str) -> None:
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)


def test_what_cannot_be_seen_is_escaped():
    assert printable("café 日本 [bold]") == "café 日本 [bold]"
    assert printable("a\x1b[0m\n\u202e\udcff") == r"a\x1b[0m\n\u202e\udcff"


@pytest.mark.parametrize("options", [(), ("--json",), ("--verify",)])
def test_inspect_shows_foreign_names(run, folder, options):
    (folder / f"{EVIL.replace('/', '_')}.hri").write_bytes(headrace.encode(IMAGE, metadata={EVIL: b"x", "[/a]": b""}))
    (folder / "damaged\x1b.hri").write_bytes(b"nothing")
    ran = run("inspect", ".", *options)

    assert ran.code == 1
    assert "failed damaged\\x1b.hri" in ran.err
    if "--json" in options:
        assert json.loads(ran.out)["metadata"] == {EVIL: 1, "[/a]": 0}
    else:
        assert "[/bold]" in ran.out
    assert_safe(ran.out + ran.err)


def test_encode_and_decode_show_foreign_names(run, folder):
    (folder / "a\x1b[2J[bold].png").write_bytes(b"nothing")
    (folder / "a\x1b[2J[bold].hri").write_bytes(b"nothing")
    for verb in ("encode", "decode"):
        ran = run(verb, ".", "-o", "out")
        assert ran.code == 1
        assert_safe(ran.out + ran.err)


def test_datasets_show_foreign_keys_and_classes(run, folder):
    fields = {"image": "image", "label": "int64", "note": "str"}
    with headrace.Writer(folder / "a.hr", fields=fields, classes=[EVIL, "b"], workers=1) as writer:
        writer.write({"image": IMAGE, "label": 0, "note": EVIL}, key=EVIL)
    for arguments in (("info", "a.hr"), ("info", "a.hr", "--json"), ("verify", "a.hr"), ("extract", "a.hr", "out")):
        ran = run(*arguments)
        assert ran.code == 0
        assert_safe(ran.out + ran.err)
    shard = folder / "a.hr/shards/000000.hrs"
    shard.write_bytes(b"\xff" + shard.read_bytes()[1:])
    for arguments in (("verify", "a.hr"), ("extract", "a.hr", "again")):
        ran = run(*arguments)
        assert ran.code == 1
        assert_safe(ran.out + ran.err)
    assert [path for path in (folder / "again").rglob("*") if path.is_file()] == []


def test_a_fifo_is_refused_and_not_waited_for(run, folder):
    os.mkfifo(folder / "a.hri")
    os.mkfifo(folder / "b.png")
    for arguments in (("inspect", "a.hri"), ("decode", "a.hri"), ("encode", "b.png")):
        ran = run(*arguments)
        assert ran.code == 1
        assert "must be a regular file; it is a FIFO" in ran.err


def test_an_array_file_that_claims_too_much_is_refused(run, folder):
    head = b"{'descr': '|u1', 'fortran_order': False, 'shape': (65535, 65535, 64), }".ljust(117) + b"\n"
    (folder / "a.npy").write_bytes(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head + bytes(100))
    ran = run("encode", "a.npy")

    assert ran.code == 1
    assert "100 bytes follow" in ran.err


def test_verifying_respects_the_limit(run, folder):
    (folder / "a.hri").write_bytes(headrace.encode(IMAGE))

    assert run("inspect", "a.hri", "--verify", "--max-pixels", 600).code == 0
    assert "max_pixels=599" in run("inspect", "a.hri", "--verify", "--max-pixels", 599).err
