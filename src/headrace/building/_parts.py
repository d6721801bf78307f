# SPDX-License-Identifier: Apache-2.0
"""Parts: the record of each finished shard, from which a build resumes (spec/dataset.md §7).

A part is an Arrow file with the rows of its shard, followed by the CRC-32C of that file in eight hex digits.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from headrace.records.checksum import crc32c, to_hex
from headrace.records.manifest import Shard

_META = b"headrace"
_SUM_BYTES = 8


@dataclass(frozen=True, slots=True)
class Part:
    """Facts about a finished shard, apart from its rows."""

    shard: Shard
    digest: str
    """Digest of the unit's keys and sizes in the source."""
    stamps: str
    """Digest of everything else that the source lists: modification times or checksums, labels, annotations."""
    items: int
    source_bytes: int
    skipped: tuple[tuple[str, str], ...]
    lossy: int = 0
    """Number of samples with an image that is lossy in the source."""


def write_part(path: Path, part: Part, table: pa.Table) -> None:
    """Write the rows of a shard and the facts about it."""
    facts = asdict(part)
    shard = facts.pop("shard")
    facts = {"bytes": shard["n_bytes"], "checksum": shard["checksum"], "samples": shard["samples"], **facts}
    described = table.replace_schema_metadata({_META: json.dumps(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, described.schema) as writer:
        writer.write_table(described)
    content = sink.getvalue()
    with path.open("wb") as stream:
        stream.write(content)
        stream.write(to_hex(crc32c(content)).encode())


def read_part(path: Path) -> tuple[Part, pa.Table] | None:
    """Read a part; return None if it is missing or damaged."""
    try:
        content = path.read_bytes()
        body, found = memoryview(content)[:-_SUM_BYTES], content[-_SUM_BYTES:]
        if to_hex(crc32c(body)).encode() != found:
            return None
        with pa.ipc.open_file(pa.py_buffer(body)) as reader:
            part = _from_json(reader.schema.metadata[_META])
            return part, reader.read_all().replace_schema_metadata(None)
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
        return None


def _from_json(text: bytes) -> Part:
    facts = json.loads(text)
    shard = Shard(facts.pop("bytes"), facts.pop("checksum"), facts.pop("samples"))
    skipped = tuple((key, reason) for key, reason in facts.pop("skipped"))
    return Part(shard, skipped=skipped, **facts)
