# SPDX-License-Identifier: Apache-2.0
"""`dataset.json`: what a dataset holds and the sums of its files (spec/dataset.md §3)."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from headrace.errors import CorruptDataset, UnsupportedDataset
from headrace.records._checksum import crc32c, to_hex
from headrace.records._schema import Field, make_fields

MANIFEST = "dataset.json"
INDEX = "index.arrow"
SHARDS = "shards"
VERSION = 0
BLOCK_BYTES = 1 << 20
MAX_SKIPPED = 1000

_END = re.compile(rb',\n"checksum":"([0-9a-f]{8})"}\n\Z')
_END_BYTES = 25


def shard_name(shard: int) -> str:
    return f"{SHARDS}/{shard:06d}.hrs"


@dataclass(frozen=True, slots=True)
class Shard:
    n_bytes: int
    checksum: str
    samples: int


@dataclass(frozen=True, slots=True)
class IndexFile:
    """Size, rows of each record batch, and the sum of each block of `index.arrow`."""

    n_bytes: int
    batches: tuple[int, ...]
    checksums: str
    block_bytes: int = BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Manifest:
    """The parsed `dataset.json`."""

    fields: tuple[Field, ...]
    index: IndexFile
    shards: tuple[Shard, ...]
    formats: Mapping[str, Mapping[str, int]]
    align: int = 64
    classes: tuple[str, ...] | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    skipped_count: int = 0
    skipped: tuple[Mapping[str, str], ...] = ()
    writer: str = ""
    identity: tuple[int, bytes] | None = field(default=None, compare=False)
    """Size and last bytes of the file that it was read from, which end with its checksum."""

    @property
    def samples(self) -> int:
        return sum(self.index.batches)

    @property
    def fingerprint(self) -> str:
        lines = [f"{self.index.n_bytes} {self.index.checksums}\n"]
        lines += [f"{shard.n_bytes} {shard.checksum}\n" for shard in self.shards]
        return blake2b("".join(lines).encode(), digest_size=16).hexdigest()

    def to_bytes(self) -> bytes:
        """Write the file: one member a line, one shard a line, the checksum last."""
        members: dict[str, Any] = {
            "headrace": "dataset",
            "version": VERSION,
            "samples": self.samples,
            "fields": {f.name: _field_json(f) for f in self.fields},
            "classes": self.classes,
            "formats": self.formats,
            "align": self.align,
            "index": {
                "bytes": self.index.n_bytes,
                "batches": self.index.batches,
                "block_bytes": self.index.block_bytes,
                "checksums": self.index.checksums,
            },
            "source": self.source,
            "options": self.options,
            "skipped": {"count": self.skipped_count, "first": self.skipped},
            "writer": self.writer,
            "fingerprint": self.fingerprint,
        }
        lines = [f"{_compact(name)}:{_compact(value)}" for name, value in members.items()]
        shards = (
            _compact({"bytes": shard.n_bytes, "checksum": shard.checksum, "samples": shard.samples})
            for shard in self.shards
        )
        lines.append('"shards":[' + ",\n ".join(shards) + "]")
        body = ("{" + ",\n".join(lines)).encode()
        return body + f',\n"checksum":"{to_hex(crc32c(body))}"}}\n'.encode()

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        path = folder / MANIFEST
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(_absence(folder)) from None
        return cls.from_bytes(data, str(path))

    def check_current(self, folder: Path) -> None:
        """Check that the folder still holds the dataset that this manifest was read from. Costs one small read.

        Call it after a shard was opened: if the dataset is replaced between the two, this notices.
        """
        if self.identity is None:
            return
        n_bytes, ending = self.identity
        with contextlib.suppress(OSError), (folder / MANIFEST).open("rb") as file:
            if file.seek(0, 2) == n_bytes and file.seek(n_bytes - len(ending)) >= 0 and file.read() == ending:
                return
        raise CorruptDataset(f"{folder} has been rebuilt or removed since it was opened: open it again")

    @classmethod
    def from_bytes(cls, data: bytes, name: str = MANIFEST) -> Manifest:
        """Check the checksum, then parse."""
        end = _END.search(data, max(0, len(data) - _END_BYTES))
        if end is None:
            raise CorruptDataset(
                f"{name}: offset {max(0, len(data) - _END_BYTES)}: the file does not end with its checksum; "
                f"it is truncated or was edited: restore it or build again"
            )
        body, found = data[: end.start()], end[1].decode()
        if to_hex(crc32c(body)) != found:
            raise CorruptDataset(
                f"{name}: the checksum of bytes 0 to {len(body) - 1} is {to_hex(crc32c(body))} and should be {found}; "
                f"the file is damaged or was edited: restore it or build again"
            )
        try:
            return replace(cls._from_json(json.loads(data)), identity=(len(data), data[-_END_BYTES:]))
        except UnsupportedDataset as error:
            raise UnsupportedDataset(f"{name}: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataset(f"{name}: not as spec/dataset.md §3 says: {error!r}") from error

    @classmethod
    def _from_json(cls, tree: dict[str, Any]) -> Manifest:
        if tree["headrace"] != "dataset":
            raise ValueError(f"'headrace' is {tree['headrace']!r}")
        if tree["version"] != VERSION:
            raise UnsupportedDataset(
                f"the dataset has version {tree['version']}, this is a reader of version {VERSION}: "
                f"install another version of headrace or build again"
            )
        index, skipped = tree["index"], tree["skipped"]
        n_bytes, block_bytes = _count(index["bytes"]), _count(index["block_bytes"])
        batches = tuple(_count(rows) for rows in index["batches"])
        blocks = -(-n_bytes // block_bytes) if block_bytes else -1
        if len(index["checksums"]) != 8 * blocks:
            raise ValueError("the index does not have one checksum a block")
        if sum(batches) != tree["samples"]:
            raise ValueError("the batches of the index do not add up to the samples")
        align = _count(tree["align"])
        if align not in [1 << bits for bits in range(6, 17)]:
            raise ValueError(f"align is {align}")
        return cls(
            fields=make_fields(
                {name: _declared(value) for name, value in tree["fields"].items()},
                {name: value.get("renditions", 0) for name, value in tree["fields"].items()},
            ),
            index=IndexFile(n_bytes, batches, str(index["checksums"]), block_bytes),
            shards=tuple(
                Shard(_count(shard["bytes"]), str(shard["checksum"]), _count(shard["samples"]))
                for shard in tree["shards"]
            ),
            formats={name: dict(counts) for name, counts in tree["formats"].items()},
            align=align,
            classes=None if tree["classes"] is None else tuple(map(str, tree["classes"])),
            source=dict(tree["source"]),
            options=dict(tree["options"]),
            skipped_count=_count(skipped["count"]),
            skipped=tuple(dict(entry) for entry in skipped["first"]),
            writer=str(tree["writer"]),
        )


def _field_json(field: Field) -> dict[str, Any]:
    if field.is_pixels:
        return {"type": field.type, "renditions": field.renditions}
    return {"type": field.type, "of": field.of} if field.of else {"type": field.type}


def _declared(value: Mapping[str, Any]) -> str:
    return f"{value['type']} of {value['of']}" if "of" in value else value["type"]


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a count")
    return value


def _absence(folder: Path) -> str:
    if (folder / ".building").is_dir():
        return f"{folder} is an unfinished build: run the same `headrace build` again to finish it"
    if folder.is_dir():
        return f"{folder} holds no {MANIFEST}: it is not a dataset; `headrace build` makes one"
    return f"there is no dataset at {folder}"


def block_checksums(checksums: str) -> Sequence[str]:
    return [checksums[at : at + 8] for at in range(0, len(checksums), 8)]
