# SPDX-License-Identifier: Apache-2.0
"""Forged datasets: one that is changed as a seed says, under checksums that are right.

A forgery is a function of the sound dataset, its kind and its seed, so that a finding can be made again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.adversarial import fuzz_versions

import headrace
from headrace._core import crc32c

EDGES = [0, 1, 2, 255, 256, 65535, 65536, 2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**47, 2**53]
EDGES += [2**62, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 1]
JSON_EDGES: list[Any] = [None, True, "", "x" * 70_000, "\x1b[2J[red]\u202e", "../../etc", "1", [], {}, 0.5, -1]
JSON_EDGES += [-0.0, 1e308, float("inf"), float("nan"), 10**400, -(2**63), "\ud800", [[]] * 1000, *EDGES]
BLOCK = 1 << 20


def make_sound(folder: Path) -> Path:
    """Make a dataset with fields of every type and an image in every format."""
    path, rng = folder / "sound.hr", np.random.default_rng(0)
    fields = {"image": "image", "mask": "mask", "label": "int64", "boxes": "boxes", "name": "str", "raw": "bytes"}
    fields |= {"scores": "list<float32>", "words": "list<str>"}
    formats = ["hri:fast", "hri:dense", "png", "jpeg", "webp", "raw"]
    with headrace.Writer(path, fields=fields, format="keep", workers=1, shard_samples=8) as writer:
        for number in range(24):
            side, name = int(rng.integers(1, 40)), formats[number % len(formats)]
            image = rng.integers(0, 256, (side, 24, 3), np.uint8)
            format_, _, mode = name.partition(":")
            data = (
                headrace.encode(image, mode=mode)
                if mode
                else headrace.formats.get(format_).encode(image, mode="95" if format_ == "jpeg" else None)
            )
            sample = {
                "image": headrace.sources.Encoded(data, format_, f"{number}"),
                "mask": rng.integers(0, 5, (side, 24)).astype(np.uint8),
                "label": number % 3,
                "boxes": (rng.random((number % 3, 4), np.float32) * 20, rng.integers(0, 9, number % 3)),
                "name": f"№ {number}",
                "raw": rng.bytes(number),
                "scores": rng.random(number % 4, np.float32),
                "words": [f"word {word}" for word in range(number % 3)],
            }
            writer.write(sample, key=f"sample/{number}")
    fuzz_versions.make_grown(path, folder / fuzz_versions.GROWN)
    return path


def hex_sum(data: bytes) -> str:
    return f"{crc32c(data, 0):08x}"


def seal(folder: Path, index: bytes, manifest: Any = None) -> None:
    """Write the index and a manifest that agrees with it as far as it has the members for that."""
    (folder / "index.arrow").write_bytes(index)
    if manifest is None:
        manifest = json.loads((folder / "dataset.json").read_bytes())
    try:
        sums = "".join(hex_sum(index[at : at + BLOCK]) for at in range(0, len(index), BLOCK))
        manifest["index"] |= {"bytes": len(index), "checksums": sums}
        lines = [f"{len(index)} {sums}\n", *(f"{s['bytes']} {s['checksum']}\n" for s in manifest["shards"])]
        manifest["fingerprint"] = blake2b("".join(lines).encode(), digest_size=16).hexdigest()
    except (AttributeError, KeyError, TypeError, UnicodeEncodeError):
        pass  # the forgery has replaced them
    write_manifest(folder, json.dumps(manifest).encode())


def write_manifest(folder: Path, document: bytes, name: str = "dataset.json") -> None:
    """Write dataset.json or a version file with a right checksum at its end."""
    body = document.rstrip().removesuffix(b"}")
    at = body.rfind(b'"checksum":"')
    if at >= 0 and len(body) - at < 24:
        body = body[:at].rstrip().removesuffix(b",")
    (folder / name).write_bytes(body + f',\n"checksum":"{hex_sum(body)}"}}\n'.encode())


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change some bytes: bits, numbers at which sums wrap, cuts, and pieces of the same file."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(out)) if out else 0
        match rng.randrange(7):
            case 0 | 1 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 2 if out:
                out[at] = rng.randrange(256)
            case 3 | 4:
                width = rng.choice((2, 4, 8))
                at -= at % width
                out[at : at + width] = (rng.choice(EDGES) & (1 << 8 * width) - 1).to_bytes(width, "little")
            case 5 if rng.random() < 0.3:
                del out[at : at + rng.choice((1, 8, len(out)))]
            case 6 if rng.random() < 0.3:
                start = rng.randrange(len(out) or 1)
                out[at:at] = out[start : start + rng.randrange(1, 64)]
    return bytes(out)


def mutate_json(document: Any, rng: random.Random) -> Any:
    """Replace, remove, repeat or nest some members, at any depth."""
    places: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        for key in node.keys() if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                collect(node[key])

    collect(document)
    for node, key in rng.sample(places, min(len(places), rng.choice((1, 1, 1, 2, 3)))):
        try:
            match rng.randrange(6):
                case 0:
                    del node[key]
                case 1 if isinstance(node[key], int):
                    node[key] += rng.choice((-1, 1, 1 << 32, -(1 << 63)))
                case 2 if isinstance(node[key], str):
                    node[key] = node[key][: rng.randrange(4)] + rng.choice(("", "\x00", "é", "/", "\n"))
                case 3:
                    node[key] = [node[key]] * rng.choice((1, 2, 300))
                case _:
                    node[key] = rng.choice(JSON_EDGES)
        except (IndexError, KeyError):
            pass  # removed a moment ago
    return document


# Kinds of forgeries: each changes a copy of the dataset.


def forge_index(folder: Path, rng: random.Random) -> None:
    """Any bytes of the index, those of its metadata more often."""
    data = (folder / "index.arrow").read_bytes()
    if rng.random() < 0.5:
        heads = [at for at in range(0, len(data) - 8, 8) if data[at : at + 4] == b"\xff\xff\xff\xff"]
        start = rng.choice([*heads, len(data) - 3000])
        part = data[start : start + 1200]
        return seal(folder, data[:start] + mutate(part, rng) + data[start + len(part) :])
    return seal(folder, mutate(data, rng))


def forge_columns(folder: Path, rng: random.Random) -> None:
    """Numbers of columns, and offsets of variable-length values."""
    mapped = pa.memory_map(str(folder / "index.arrow"))
    base = mapped.read_buffer().address
    mapped.seek(0)
    batches = [pa.ipc.open_file(mapped).get_batch(0)]
    data = bytearray((folder / "index.arrow").read_bytes())
    for _ in range(rng.choice((1, 1, 2, 6))):
        column = rng.choice(rng.choice(batches).columns)
        buffers = [buffer for buffer in column.buffers() if buffer is not None and buffer.size > 0]
        if not buffers:
            continue
        buffer, width = rng.choice(buffers), rng.choice((1, 4, 8))
        start = buffer.address - base + rng.randrange(max(1, buffer.size // width)) * width
        value = rng.choice((rng.choice(EDGES), data[start] + rng.choice((-1, 1)), rng.randrange(1 << 16)))
        data[start : start + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
    seal(folder, bytes(data))


def forge_schema(folder: Path, rng: random.Random) -> None:  # noqa: C901 - one case for each way
    """Another Arrow file than the spec asks for: types, nulls, compression, dictionaries, batches."""
    table = pa.ipc.open_file(pa.BufferReader((folder / "index.arrow").read_bytes())).read_all()
    number = rng.randrange(table.num_columns)
    name, column = table.column_names[number], table.column(number)
    options = {}
    match rng.randrange(9):
        case 0:
            options["compression"] = rng.choice(("lz4", "zstd"))
        case 1 if not pa.types.is_nested(column.type):
            table = table.set_column(number, name, column.combine_chunks().dictionary_encode())
        case 2:
            table = table.set_column(number, name, pa.nulls(len(table), column.type))
        case 3:
            table = table.remove_column(number)
        case 4:
            table = table.append_column(rng.choice((name, "more", "")), column)
        case 5:
            other = rng.choice((pa.int8(), pa.float64(), pa.string(), pa.bool_(), pa.null(), pa.list_(pa.int64())))
            table = table.set_column(number, name, pa.nulls(len(table), other))
        case 6:
            deep = pa.array([1], pa.int64())
            for _ in range(rng.choice((1, 20, 50))):
                deep = pa.StructArray.from_arrays([deep], ["x"])
            table = table.set_column(number, name, pa.chunked_array([deep.take(pa.array([0] * len(table)))]))
        case 7:
            table = pa.concat_tables([table] * rng.choice((2, 50)))
        case _:
            table = table.slice(0, rng.choice((0, 1, 23)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rng.choice((1, 7, None)))
    manifest = json.loads((folder / "dataset.json").read_bytes())
    if rng.random() < 0.5:
        manifest["samples"] = len(table)
        manifest["index"]["batches"] = [len(batch) for batch in table.to_batches()]
    seal(folder, sink.getvalue().to_pybytes(), manifest)


def forge_manifest(folder: Path, rng: random.Random) -> None:
    """Members of dataset.json, or its bytes."""
    content = (folder / "dataset.json").read_bytes()
    if rng.random() < 0.7:
        manifest = mutate_json(json.loads(content), rng)
        if rng.random() < 0.5:
            return seal(folder, (folder / "index.arrow").read_bytes(), manifest)
        content = json.dumps(manifest).encode()
    elif rng.random() < 0.1:
        content = content.replace(b'"align"', b'"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"align"')
    else:
        content = mutate(content, rng)
    return write_manifest(folder, content)


def forge_shards(folder: Path, rng: random.Random) -> None:
    """Shards that are short, damaged, or no files."""
    shard = rng.choice(sorted((folder / "shards").iterdir()))
    data = shard.read_bytes()
    shard.unlink()
    match rng.randrange(8):
        case 0:
            os.mkfifo(shard)
        case 1:
            shard.mkdir()
        case 2:
            shard.symlink_to(rng.choice(("/dev/zero", "/dev/null", shard, "missing")))
        case 3:
            shard.write_bytes(data[: rng.randrange(len(data))])
        case 4:
            pass
        case _:
            shard.write_bytes(mutate(data, rng))


def forge_version(folder: Path, rng: random.Random) -> None:
    """Members of the newest version file, or its bytes."""
    path = folder / fuzz_versions.NEWEST
    content = path.read_bytes()
    content = json.dumps(mutate_json(json.loads(content), rng)).encode() if rng.random() < 0.8 else mutate(content, rng)
    write_manifest(folder, content, fuzz_versions.NEWEST)


def forge_segment(folder: Path, rng: random.Random) -> None:
    """The index file that a version added, or one of its change files, under checksums that are right."""
    name = rng.choice(("index/000002.arrow", "changes/000003.arrow", "changes/000004.arrow"))
    content = mutate((folder / name).read_bytes(), rng)
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / fuzz_versions.NEWEST).read_bytes())
    entry = fuzz_versions.entry_of(manifest, name)
    entry |= {"bytes": len(content)}
    entry["checksums"] = "".join(hex_sum(content[at : at + BLOCK]) for at in range(0, len(content), BLOCK))
    write_manifest(folder, json.dumps(manifest).encode(), fuzz_versions.NEWEST)


def forge_changes(folder: Path, rng: random.Random) -> None:
    """Change files whose rows do not ascend, do not exist, or are not as many as the version says."""
    name = rng.choice(("changes/000003.arrow", "changes/000004.arrow"))
    table = pa.ipc.open_file(pa.BufferReader((folder / name).read_bytes())).read_all()
    rows = table.column(0).to_pylist()
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        value = rng.choice((-1, 0, 5, 29, 30, 31, 1 << 31, (1 << 63) - 1, -(1 << 63), rows[0]))
        rows[rng.randrange(len(rows))] = value
    rows *= rng.choice((1, 1, 1, 2, 40))
    columns = [pa.array(rows, pa.int64())]
    if table.num_columns > 1:
        labels = [rng.choice((0, -1, 1 << 62)) for _ in rows]
        columns.append(pa.array(labels, pa.int64()))
    forged = pa.Table.from_arrays(columns, schema=table.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, forged.schema) as writer:
        writer.write_table(forged)
    content = sink.getvalue().to_pybytes()
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / fuzz_versions.NEWEST).read_bytes())
    entry = fuzz_versions.entry_of(manifest, name)
    entry |= {"bytes": len(content), "checksums": hex_sum(content), "batches": [len(rows)]}
    if name == "changes/000003.arrow" and rng.random() < 0.8:
        manifest["samples"] = max(0, sum(sum(file["batches"]) for file in manifest["index"]) - len(rows))
        for shard in manifest["shards"]:
            shard["dropped"] = 0
        manifest["shards"][rng.randrange(len(manifest["shards"]))]["dropped"] = len(rows)
    write_manifest(folder, json.dumps(manifest).encode(), fuzz_versions.NEWEST)


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "index": forge_index,
    "columns": forge_columns,
    "schema": forge_schema,
    "manifest": forge_manifest,
    "shards": forge_shards,
    "version": forge_version,
    "segment": forge_segment,
    "changes": forge_changes,
}
GROWN_KINDS = ("version", "segment", "changes")
"""Kinds of forgeries of a dataset that has versions."""


def make(sound: Path, folder: Path, kind: str, seed: int) -> None:
    """Make a forgery at `folder`, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    sound = sound.with_name(fuzz_versions.GROWN) if kind in GROWN_KINDS else sound
    shutil.copytree(sound, folder, copy_function=_link if kind != "shards" else shutil.copy)
    KINDS[kind](folder, random.Random(f"{kind} {seed}"))


def _link(source: str, target: str) -> None:
    """Share a shard, which these forgeries do not touch."""
    if source.endswith(".hrs"):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)
