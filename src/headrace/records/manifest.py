# SPDX-License-Identifier: Apache-2.0
"""`dataset.json` and version files: contents of a dataset and checksums of its files (spec/dataset.md §3, §10)."""

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
from headrace.records.versions import FIRST, MANIFEST, address, split_address, version_name, version_numbers

SHARDS = "shards"
VERSION = 0
BLOCK_BYTES = 1 << 20
MIN_BLOCK_BYTES, MAX_BLOCK_BYTES = 1 << 12, 1 << 26
MAX_BYTES = 1 << 26
"""Maximum size of `dataset.json`. With a million shards, 256 TB by default, it has 60 MB."""
MAX_SKIPPED = 1000
MAX_INDEX_FILES = 64
"""Maximum index files of a version: what opening it costs."""
MAX_SEARCHED = 1000
"""Maximum versions to compare with a fingerprint."""
RELABELED_TYPES = ("int64", "float32", "str")
ACTIONS = ("add", "drop", "relabel")

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
    dropped: int = 0
    """Number of its samples that this version drops."""


@dataclass(frozen=True, slots=True)
class IndexFile:
    """Size, rows of each record batch, and the checksum of each block of an index file or change file."""

    n_bytes: int
    batches: tuple[int, ...]
    checksums: str
    block_bytes: int = BLOCK_BYTES
    number: int = 0
    """The number in its name; 0 is `index.arrow`."""

    @property
    def rows(self) -> int:
        return sum(self.batches)

    @property
    def line(self) -> str:
        """Its line of the fingerprint."""
        return f"{self.n_bytes} {self.checksums}\n"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The parsed `dataset.json`, or file of a later version."""

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
    number: int = FIRST
    """The number of the version."""
    added: tuple[IndexFile, ...] = ()
    """Index files whose rows follow those of `index`."""
    dropped: IndexFile | None = None
    relabeled: Mapping[str, IndexFile] = field(default_factory=dict)
    """The change file with the new values of each field that was relabeled."""
    change: Mapping[str, Any] = field(default_factory=dict)
    """What this version changed; empty for the first."""

    @property
    def indexes(self) -> tuple[IndexFile, ...]:
        """The index files, in the order of their rows."""
        return (self.index, *self.added)

    @property
    def batches(self) -> tuple[int, ...]:
        """The number of rows of each record batch, over all index files."""
        return tuple(rows for file in self.indexes for rows in file.batches)

    @property
    def rows(self) -> int:
        """The number of rows of the index, dropped ones included."""
        return sum(self.batches)

    @property
    def samples(self) -> int:
        return self.rows - (self.dropped.rows if self.dropped else 0)

    @property
    def index_bytes(self) -> int:
        """The size of all index files and change files."""
        changes = [*self.relabeled.values(), *([self.dropped] if self.dropped else [])]
        return sum(file.n_bytes for file in (*self.indexes, *changes))

    @property
    def file(self) -> str:
        """The name of the file that it is stored in."""
        return version_name(self.number)

    @property
    def fingerprint(self) -> str:
        lines = [file.line for file in self.indexes]
        lines += [f"{shard.n_bytes} {shard.checksum}\n" for shard in self.shards]
        lines += [f"dropped {self.dropped.line}"] if self.dropped else []
        lines += [f"relabeled {f.name} {self.relabeled[f.name].line}" for f in self.fields if f.name in self.relabeled]
        return blake2b("".join(lines).encode(), digest_size=16).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the file: one line per member and per shard, the checksum last."""
        described = {name: each.to_json() for name, each in self.keypoints.items()}
        is_first = self.number == FIRST
        members: dict[str, Any] = {
            "headrace": "dataset" if is_first else "dataset version",
            "version": VERSION,
            **({} if is_first else {"number": self.number, "change": self.change}),
            "samples": self.samples,
            "fields": {f.name: _field_json(f) for f in self.fields},
            "classes": self.classes,
            **({"keypoints": described} if described else {}),
            "formats": self.formats,
            "align": self.align,
            "index": _index_json(self.index) if is_first else [_numbered_json(file) for file in self.indexes],
            "source": self.source,
            "options": self.options,
            "skipped": {"count": self.skipped_count, "first": self.skipped},
            "writer": self.writer,
            "fingerprint": self.fingerprint,
        }
        if not is_first:
            members["dropped"] = _numbered_json(self.dropped) if self.dropped else None
            members["relabeled"] = {name: _numbered_json(file) for name, file in self.relabeled.items()}
        lines = [f"{_compact(name)}:{_compact(value)}" for name, value in members.items()]
        shards = (
            _compact(
                {"bytes": shard.n_bytes, "checksum": shard.checksum, "samples": shard.samples}
                | ({"dropped": shard.dropped} if shard.dropped else {})
            )
            for shard in self.shards
        )
        lines.append('"shards":[' + ",\n ".join(shards) + "]")
        body = ("{" + ",\n".join(lines)).encode()
        return body + f',\n"checksum":"{to_hex(crc32c(body))}"}}\n'.encode()

    @classmethod
    def load(cls, folder: Path, number: int | None = None) -> Manifest:
        """Read a version of the dataset in a folder: the newest, or the one with this number.

        The folder may have the version in its name, as in `photos.hr@v3`.
        """
        if number is None:
            folder, number = split_address(folder)
        numbers = version_numbers(folder)
        number = (numbers[-1] if numbers else FIRST) if number is None else number
        path = folder / version_name(number)
        try:
            data = read_file(path, MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(_absence(folder, number, numbers)) from None
        except PermissionError:
            raise
        except OSError as error:
            raise CorruptDataset(f"{path} cannot be read: {error.strerror}; restore it or build again") from error
        manifest = cls.from_bytes(data, str(path))
        if manifest.number != number:
            raise CorruptDataset(f"{path}: the file must be version {number}; it is {manifest.number}: restore it")
        return manifest

    @classmethod
    def find(cls, folder: Path, fingerprint: str) -> Manifest | None:
        """Return the version of a dataset that has this fingerprint; None if none of the newest 1000 has it."""
        for number in reversed(version_numbers(folder)[-MAX_SEARCHED:]):
            with contextlib.suppress(CorruptDataset, UnsupportedDataset, OSError):
                manifest = cls.load(folder, number)
                if manifest.fingerprint == fingerprint:
                    return manifest
        return None

    def check_current(self, folder: Path) -> None:
        """Raise CorruptDataset if the folder no longer has the dataset that this manifest was read from.

        Costs one small read. Call it after opening a shard, so that a replaced dataset is noticed.
        """
        if self.identity is None:
            return
        n_bytes, ending = self.identity
        with contextlib.suppress(OSError):
            handle = open_file(folder / self.file)
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
        if tree["headrace"] not in ("dataset", "dataset version"):
            raise ValueError(f"'headrace' must be 'dataset' or 'dataset version'; got {_short(tree['headrace'])}")
        is_first = tree["headrace"] == "dataset"
        if tree["version"] != VERSION or isinstance(tree["version"], bool):
            raise UnsupportedDataset(
                f"the dataset has version {_short(tree['version'])}; this version of headrace reads {VERSION}: install "
                f"another version or build again"
            )
        indexes = [_read_index(tree["index"])] if is_first else [_read_numbered(one) for one in _list(tree["index"])]
        if not 1 <= len(indexes) <= MAX_INDEX_FILES:
            raise ValueError(f"a version must have 1 to {MAX_INDEX_FILES} index files; got {len(indexes)}")
        dropped = None if is_first or tree["dropped"] is None else _read_numbered(tree["dropped"])
        rows, n_dropped = sum(file.rows for file in indexes), dropped.rows if dropped else 0
        if rows - n_dropped != _count(tree["samples"]):
            raise ValueError("the rows of the record batches that are not dropped must add up to the samples")
        shards = tuple(_read_shard(shard, is_first=is_first) for shard in _list(tree["shards"]))
        if sum(shard.samples for shard in shards) != rows:
            raise ValueError("the samples of the shards must add up to the rows of the index")
        if sum(shard.dropped for shard in shards) != n_dropped:
            raise ValueError("the dropped samples of the shards must add up to the dropped rows")
        align = _count(tree["align"])
        if align not in ALIGNMENTS:
            raise ValueError(f"align must be a power of 2 from 64 to 65536; got {align}")
        declared = tree["fields"]
        fields = make_fields(
            {_text(name): _declared(value) for name, value in declared.items()},
            {name: _count(value.get("renditions", 0)) for name, value in declared.items()},
        )
        skipped = _list(tree["skipped"]["first"])
        return cls(
            fields=fields,
            index=indexes[0],
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
            number=FIRST if is_first else _read_number(tree["number"]),
            added=tuple(indexes[1:]),
            dropped=dropped,
            relabeled={} if is_first else _read_relabeled(tree["relabeled"], fields, rows),
            change={} if is_first else _read_change(tree["change"]),
        )


def _read_index(tree: dict[str, Any]) -> IndexFile:
    n_bytes, block_bytes = _count(tree["bytes"]), _count(tree["block_bytes"])
    if not MIN_BLOCK_BYTES <= block_bytes <= MAX_BLOCK_BYTES:
        raise ValueError(f"block_bytes must be {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}; got {block_bytes}")
    batches = tuple(_count(rows) for rows in _list(tree["batches"]))
    if max(batches, default=0) > MAX_ROWS:
        raise ValueError(f"a record batch must have at most {MAX_ROWS} rows; one has {max(batches)}")
    return IndexFile(n_bytes, batches, _checksums(tree["checksums"], -(-n_bytes // block_bytes)), block_bytes)


def _read_numbered(tree: dict[str, Any]) -> IndexFile:
    return replace(_read_index(tree), number=_count(tree["file"]))


def _read_number(value: Any) -> int:
    if _count(value) <= FIRST:
        raise ValueError(f"the number of a version file must be 2 or more; got {value}")
    return int(value)


def _read_shard(tree: dict[str, Any], *, is_first: bool) -> Shard:
    samples, dropped = _count(tree["samples"]), 0 if is_first else _count(tree.get("dropped", 0))
    if dropped > samples:
        raise ValueError(f"a shard must have at least as many samples as it has dropped ones; got {samples}, {dropped}")
    return Shard(_count(tree["bytes"]), _checksums(tree["checksum"], 1), samples, dropped)


def _read_relabeled(tree: dict[str, Any], fields: tuple[Field, ...], rows: int) -> dict[str, IndexFile]:
    allowed = {field.name for field in fields if field.type in RELABELED_TYPES}
    found = {_text(name): _read_numbered(file) for name, file in tree.items()}
    for name, file in found.items():
        if name not in allowed or file.rows > rows:
            raise ValueError(
                f"a relabeled field must be one of {sorted(allowed)} with at most {rows} values; got {name!r}"
            )
    return found


def _read_change(tree: dict[str, Any]) -> dict[str, Any]:
    change: dict[str, Any] = _plain(dict(tree))
    if change["action"] not in ACTIONS:
        raise ValueError(f"the action of a change must be one of {', '.join(ACTIONS)}; got {_short(change['action'])}")
    _count(change["samples"])
    if "source" in change:
        change["source"] = _read_source(change["source"])
    if "field" in change:
        _text(change["field"])
    return change


def _index_json(file: IndexFile) -> dict[str, Any]:
    return {
        "bytes": file.n_bytes,
        "batches": file.batches,
        "block_bytes": file.block_bytes,
        "checksums": file.checksums,
    }


def _numbered_json(file: IndexFile) -> dict[str, Any]:
    return {"file": file.number, **_index_json(file)}


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


def _absence(folder: Path, number: int, numbers: list[int]) -> str:
    if numbers:
        known = ", ".join(map(str, numbers[-20:]))
        return (
            f"there is no {address(folder, number)}; the dataset has the versions {known}: see `headrace log {folder}`"
        )
    if (folder / ".building").is_dir():
        return f"{folder} is an unfinished build; run the same `headrace build` again to finish it"
    if folder.is_dir():
        return f"{folder} is not a dataset: it has no {MANIFEST}; make one with `headrace build`"
    return f"there is no dataset at {folder}: it does not exist"
