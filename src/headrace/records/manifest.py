# SPDX-License-Identifier: Apache-2.0
"""`dataset.json`: the contents of a dataset and the checksums of its files (spec/dataset.md §3)."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from headrace.errors import CorruptDataset, UnsupportedDataset
from headrace.files import open_file, read_at, read_file
from headrace.records.checksum import crc32c, to_hex
from headrace.records.keypoints import Keypoints, read_keypoints
from headrace.records.schema import ALIGNMENTS, MAX_ROWS, Field, make_fields

MANIFEST = "dataset.json"
INDEX = "index.arrow"
SHARDS = "shards"
VERSION = 0
BLOCK_BYTES = 1 << 20
MIN_BLOCK_BYTES, MAX_BLOCK_BYTES = 1 << 12, 1 << 26
MAX_BYTES = 1 << 26
"""Maximum size of `dataset.json`. With a million shards, 256 TB by default, it has 60 MB."""
MAX_SKIPPED = 1000

_END = re.compile(rb',\n"checksum":"([0-9a-f]{8})"}\n\Z')
_END_BYTES = 25
_HEX = re.compile(r"[0-9a-f]*")
_MAX_DEPTH = 16
_MAX_MESSAGE = 300


def shard_name(shard: int) -> str:
    return f"{SHARDS}/{shard:06d}.hrs"


@dataclass(frozen=True, slots=True)
class Shard:
    n_bytes: int
    checksum: str
    samples: int


@dataclass(frozen=True, slots=True)
class IndexFile:
    """Size, rows of each record batch, and the checksum of each block of `index.arrow`."""

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
    keypoints: Mapping[str, Keypoints] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    skipped_count: int = 0
    skipped: tuple[Mapping[str, str], ...] = ()
    writer: str = ""
    identity: tuple[int, bytes] | None = field(default=None, compare=False)
    """Size and last bytes of the file that it was read from, including its checksum."""

    @property
    def samples(self) -> int:
        return sum(self.index.batches)

    @property
    def fingerprint(self) -> str:
        lines = [f"{self.index.n_bytes} {self.index.checksums}\n"]
        lines += [f"{shard.n_bytes} {shard.checksum}\n" for shard in self.shards]
        return blake2b("".join(lines).encode(), digest_size=16).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the file: one line per member and per shard, the checksum last."""
        described = {name: each.to_json() for name, each in self.keypoints.items()}
        members: dict[str, Any] = {
            "headrace": "dataset",
            "version": VERSION,
            "samples": self.samples,
            "fields": {f.name: _field_json(f) for f in self.fields},
            "classes": self.classes,
            **({"keypoints": described} if described else {}),
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
            data = read_file(path, MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(_absence(folder)) from None
        except PermissionError:
            raise
        except OSError as error:
            raise CorruptDataset(f"{path} cannot be read: {error.strerror}; restore it or build again") from error
        return cls.from_bytes(data, str(path))

    def check_current(self, folder: Path) -> None:
        """Raise CorruptDataset if the folder no longer has the dataset that this manifest was read from.

        Costs one small read. Call it after opening a shard, so that a replaced dataset is noticed.
        """
        if self.identity is None:
            return
        n_bytes, ending = self.identity
        with contextlib.suppress(OSError):
            handle = open_file(folder / MANIFEST)
            try:
                found = bytearray(len(ending))
                read_at(handle, n_bytes - len(ending), found)
                if os.fstat(handle).st_size == n_bytes and found == ending:
                    return
            finally:
                os.close(handle)
        raise CorruptDataset(f"{folder} has been rebuilt or removed since it was opened; open it again")

    @classmethod
    def from_bytes(cls, data: bytes, name: str = MANIFEST) -> Manifest:
        """Check the checksum, then parse."""
        end = _END.search(data, max(0, len(data) - _END_BYTES))
        if end is None:
            raise CorruptDataset(
                f"{name}: offset {max(0, len(data) - _END_BYTES)}: the file must end with its checksum; "
                f"it is truncated or was edited: restore it or build again"
            )
        body, found = data[: end.start()], end[1].decode()
        if to_hex(crc32c(body)) != found:
            raise CorruptDataset(
                f"{name}: the checksum of bytes 0 to {len(body) - 1} must be {found}; it is {to_hex(crc32c(body))}; "
                f"the file is damaged or was edited: restore it or build again"
            )
        try:
            manifest = cls._from_json(json.loads(data, parse_constant=_refuse_constant))
            return replace(manifest, identity=(len(data), data[-_END_BYTES:]))
        except UnsupportedDataset as error:
            raise UnsupportedDataset(f"{name}: {error}") from None
        except RecursionError:
            raise CorruptDataset(f"{name}: lists and objects are nested too deep; build again") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found = f"{type(error).__name__}: {error}"
            short = found if len(found) <= _MAX_MESSAGE else f"{found[:_MAX_MESSAGE]}…"
            raise CorruptDataset(f"{name}: must follow spec/dataset.md §3: {short}") from error

    @classmethod
    def _from_json(cls, tree: dict[str, Any]) -> Manifest:
        if tree["headrace"] != "dataset":
            raise ValueError(f"'headrace' must be 'dataset'; got {tree['headrace']!r}")
        if tree["version"] != VERSION or isinstance(tree["version"], bool):
            raise UnsupportedDataset(
                f"the dataset has version {_short(tree['version'])}; this version of headrace reads {VERSION}: install "
                f"another version or build again"
            )
        index = _read_index(tree["index"])
        samples = _count(tree["samples"])
        if sum(index.batches) != samples:
            raise ValueError("the rows of the record batches must add up to the samples")
        shards = tuple(
            Shard(_count(shard["bytes"]), _checksums(shard["checksum"], 1), _count(shard["samples"]))
            for shard in _list(tree["shards"])
        )
        if sum(shard.samples for shard in shards) != samples:
            raise ValueError("the samples of the shards must add up to the samples")
        align = _count(tree["align"])
        if align not in ALIGNMENTS:
            raise ValueError(f"align must be a power of 2 from 64 to 65536; got {align}")
        fields = tree["fields"]
        skipped = _list(tree["skipped"]["first"])
        return cls(
            fields=make_fields(
                {_text(name): _declared(value) for name, value in fields.items()},
                {name: _count(value.get("renditions", 0)) for name, value in fields.items()},
            ),
            index=index,
            shards=shards,
            formats={
                _text(name): {_text(stored): _count(count) for stored, count in counts.items()}
                for name, counts in tree["formats"].items()
            },
            align=align,
            classes=None if tree["classes"] is None else tuple(map(_text, _list(tree["classes"]))),
            keypoints={_text(name): read_keypoints(given) for name, given in tree.get("keypoints", {}).items()},
            source=_read_source(tree["source"]),
            options=_plain(dict(tree["options"])),
            skipped_count=_count(tree["skipped"]["count"]),
            skipped=tuple({"key": _text(entry["key"]), "reason": _text(entry["reason"])} for entry in skipped),
            writer=_text(tree["writer"]),
        )


def _read_index(tree: dict[str, Any]) -> IndexFile:
    n_bytes, block_bytes = _count(tree["bytes"]), _count(tree["block_bytes"])
    if not MIN_BLOCK_BYTES <= block_bytes <= MAX_BLOCK_BYTES:
        raise ValueError(f"block_bytes must be {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}; got {block_bytes}")
    batches = tuple(_count(rows) for rows in _list(tree["batches"]))
    if max(batches, default=0) > MAX_ROWS:
        raise ValueError(f"a record batch must have at most {MAX_ROWS} rows; one has {max(batches)}")
    return IndexFile(n_bytes, batches, _checksums(tree["checksums"], -(-n_bytes // block_bytes)), block_bytes)


def _read_source(tree: dict[str, Any]) -> dict[str, Any]:
    source: dict[str, Any] = _plain(dict(tree))
    for name in ("kind", "name"):
        if source.get(name) is not None:
            _text(source[name])
    for name in ("samples", "bytes"):
        _count(source.get(name, 0))
    return source


def _field_json(field: Field) -> dict[str, Any]:
    if field.is_pixels:
        return {"type": field.type, "renditions": field.renditions}
    return {"type": field.type, "of": field.of} if field.of else {"type": field.type}


def _declared(value: Mapping[str, Any]) -> str:
    kind = _text(value["type"])
    return f"{kind} of {_text(value['of'])}" if "of" in value else kind


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# The file is not trusted: the type of each member is checked before it is used.


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"expected an integer >= 0; got {_short(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a string; got {_short(value)}")
    value.encode()  # a lone surrogate, which JSON can spell, is a ValueError
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list; got {_short(value)}")
    return value


def _checksums(value: Any, count: int) -> str:
    if not isinstance(value, str) or len(value) != 8 * count or not _HEX.fullmatch(value):
        raise ValueError(f"expected {count} checksums of eight hexadecimal digits; got {_short(value)}")
    return value


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value of any type after checking that it is not nested too deep to print or write."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"lists and objects must be nested at most {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        return {_text(name): _plain(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    return _text(value) if isinstance(value, str) else value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid in JSON")


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:59]}…"


def _absence(folder: Path) -> str:
    if (folder / ".building").is_dir():
        return f"{folder} is an unfinished build; run the same `headrace build` again to finish it"
    if folder.is_dir():
        return f"{folder} is not a dataset: it has no {MANIFEST}; make one with `headrace build`"
    return f"there is no dataset at {folder}: it does not exist"
