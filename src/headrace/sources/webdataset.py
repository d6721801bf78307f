# SPDX-License-Identifier: Apache-2.0
"""WebDataset: tar archives in which the files of a sample follow each other and share their name up to the first dot.

| ends in | field | type |
|---|---|---|
| `.jpg`, `.png`, … | `image` | image |
| `.left.png` | `left` | image; mask if the name contains mask, seg or label |
| `.cls`, `.class` | `label` | int64 |
| `.count`, `.id`, `.index`, `.inx` | the suffix | int64 |
| `.json`, `.text`, `.transcript`, `.txt` | the suffix | str |
| `.npy` | the suffix | tensor of the dtype and shape of the first one; bytes if it is none |
| anything else | the suffix | bytes |

The first intact sample determines the fields. A plain `.tar` is read at random. A compressed one (`.tar.gz`, `.tgz`) is
unpacked from its start up to each sample, by every worker; unpack it first if you use many workers.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import BadSource, HeadraceError
from headrace.formats.optional import read_npy
from headrace.sources import _tar
from headrace.sources._paths import is_image_name, read_range
from headrace.sources._types import Ignored, Item, PerThread, encoded, field_name
from headrace.tensors import is_tensor, tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INT64 = {"class": "label", "cls": "label", "count": "count", "id": "id", "index": "index", "inx": "inx"}
_STR = ("json", "text", "transcript", "txt")
_ARRAY = "npy"  # an array next to the image, not the image
_MASK_WORDS = ("mask", "seg", "label")
_MAX_MEMBERS = 256  # files per sample
_MAX_TEXT_BYTES = 2**26

Part = tuple[str, int, int]  # suffix (after the first dot), offset, bytes


class _Group(NamedTuple):
    """The files of one sample: their name up to the first dot, and a problem with one of them."""

    name: str
    parts: tuple[Part, ...]
    problem: str | None = None


class WebDatasetSource:
    """The samples of tar archives, in the order given and in the order of each archive."""

    kind = "webdataset"
    sequential = False
    classes = None

    def __init__(self, paths: Sequence[str | Path]) -> None:
        if not paths:
            raise BadSource("a WebDataset source needs at least one tar archive")
        self._paths = tuple(os.fspath(path) for path in paths)
        self._names = _names(self._paths)
        self._unpacked: PerThread[_tar.Archive] = PerThread()
        self.ignored = Ignored()
        path, first = self._first_sample()
        self.fields = dict(self._field(path, part) for part in first.parts)
        if len(self.fields) != len(first.parts):
            raise BadSource(
                f"{path}: two files of sample {first.name!r} are the same field; rename one: {_suffixes(first.parts)}"
            )
        if not any(kind == "image" or is_tensor(kind) for kind in self.fields.values()):
            raise BadSource(
                f"{path}: the first sample, {first.name!r}, has no image or tensor; it has {_suffixes(first.parts)}"
            )

    def _field(self, path: str, part: Part) -> tuple[str, str]:
        """Return the name and type of the field for a file of the first sample."""
        name, kind = _field(part)
        if kind == "bytes" and part[0].endswith(_ARRAY):
            with suppress(HeadraceError, ValueError):
                return name, str(tensor_of(read_npy(self._read(path, part)))[0])
        return name, kind

    def _first_sample(self) -> tuple[str, _Group]:
        """Return the first intact sample and its archive."""
        problem = ""
        for path in self._paths:
            try:
                for group in _groups(path, Ignored()):
                    if group.problem is None:
                        return path, group
                    problem = problem or group.problem
            except BadSource as error:
                problem = problem or str(error)
        raise BadSource(problem or f"{self._paths[0]} contains no samples")

    def items(self) -> Iterator[Item]:
        self.ignored = Ignored()
        for number, path in enumerate(self._paths):
            try:
                stamp = Path(path).stat().st_mtime_ns
                for name, parts, problem in _groups(path, self.ignored):
                    n_bytes = sum(part[2] for part in parts)
                    yield Item(f"{self._names[number]}/{name}", n_bytes, (number, parts), stamp, problem)
            except (BadSource, OSError) as error:
                yield Item(self._names[number], 0, (number, ()), 0, str(error))

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        number, parts = item.locator
        path = self._paths[number]
        sample: dict[str, object] = {}
        for part in parts:
            name, kind = _field(part)
            own = self.fields.get(name, "")
            if is_tensor(own) and part[0].endswith(_ARRAY):
                kind = own
            if own != kind or name in sample:
                raise BadSource(
                    f"{path}: sample {item.key!r} has a file '.{part[0]}', which the first sample does not have"
                )
            sample[name] = _value(kind, self._read(path, part), f"{path}: {item.key}.{part[0]}")
        missing = self.fields.keys() - sample.keys()
        if missing:
            raise BadSource(
                f"{path}: sample {item.key!r} has no {', '.join(sorted(missing))}, which the first sample has"
            )
        return {name: sample[name] for name in self.fields}

    def _read(self, path: str, part: Part) -> bytes:
        _, offset, n_bytes = part
        if _tar.is_compressed(path):
            contents = self._unpacked.get(path, lambda: _tar.Archive(path)).read_range(offset, n_bytes)
        else:
            contents = read_range(path, offset, n_bytes)
        if len(contents) != n_bytes:
            raise BadSource(f"{path} has changed since it was listed: it ends before byte {offset + n_bytes}")
        return contents


def _groups(path: str, ignored: Ignored) -> Iterator[_Group]:
    """Yield the samples of an archive; if it is damaged, raise after the samples before the damage."""
    base: str | None = None
    parts: list[Part] = []
    problem: str | None = None
    damage: BadSource | None = None
    try:
        for member in _tar.members(path):
            folder, _, file_name = member.name.rpartition("/")
            stem, dot, end = file_name.partition(".")
            if member.problem is None and (not dot or not stem or _is_metadata(member.name)):
                ignored.add(member.name)
                continue
            name = f"{folder}/{stem}" if folder else stem
            if name != base:
                if base is not None:
                    yield _Group(base, tuple(parts), problem)
                base, parts, problem = name, [], None
            if len(parts) == _MAX_MEMBERS:
                problem = problem or f"{path}: sample {base!r} has more than {_MAX_MEMBERS} files"
                continue
            problem = problem or member.problem
            parts.append((end.lower(), member.offset, member.n_bytes))
    except BadSource as error:
        damage = error
    if base is not None:
        yield _Group(base, tuple(parts), problem)
    if damage is not None:
        raise damage


def _is_metadata(name: str) -> bool:
    """Return whether a member, such as `__meta__`, describes the archive and is not a sample."""
    return any(part.startswith("__") and part.endswith("__") for part in name.split("/"))


def _field(part: Part) -> tuple[str, str]:
    """Return the name and type of the field for a file."""
    end = part[0]
    if is_image_name(f".{end}") and not end.endswith(_ARRAY):
        role = end.rpartition(".")[0]
        is_mask = any(word in role for word in _MASK_WORDS)
        return (field_name(role) if role else "image"), "mask" if is_mask else "image"
    if end in _INT64:
        return _INT64[end], "int64"
    return field_name(end), "str" if end.rpartition(".")[2] in _STR else "bytes"


def _value(kind: str, contents: bytes, where: str) -> object:
    if kind in ("image", "mask"):
        return encoded(contents, where)
    if kind == "bytes":
        return contents
    if is_tensor(kind):
        try:
            return read_npy(contents)
        except HeadraceError as error:
            raise BadSource(f"{where}: {error}") from error
    if len(contents) > _MAX_TEXT_BYTES:
        raise BadSource(f"{where} has {len(contents)} bytes; a text or number must have at most {_MAX_TEXT_BYTES}")
    try:
        text = contents.decode()
        number = int(text) if kind == "int64" else 0
    except ValueError as error:
        raise BadSource(f"{where} must be {kind}: {error}") from None
    if not -(2**63) <= number < 2**63:
        raise BadSource(f"{where} must fit in 64 bits; got {number}")
    return number if kind == "int64" else text


def _names(paths: Sequence[str]) -> list[str]:
    """Return the archives' names for keys: their paths relative to the common folder."""
    full = [Path(path).absolute() for path in paths]
    common = os.path.commonpath([path.parent for path in full])
    return [path.relative_to(common).as_posix() for path in full]


def _suffixes(parts: Sequence[Part]) -> str:
    return ", ".join(f".{part[0]}" for part in parts)
