# SPDX-License-Identifier: Apache-2.0
"""WebDataset: tar archives in which files of one sample stand together and share their name up to its first dot.

| ends in | field | type |
|---|---|---|
| `.jpg`, `.png`, … | `image` | image |
| `.left.png` | `left` | image; mask if the name says mask, seg or label |
| `.cls`, `.class` | `label` | int64 |
| `.count`, `.id`, `.index`, `.inx` | as they end | int64 |
| `.json`, `.text`, `.transcript`, `.txt` | as they end | str |
| anything else | as it ends | bytes |

The first intact sample says which fields there are. A plain `.tar` is read at random. A compressed one (`.tar.gz`,
`.tgz`) has to be unpacked from its start up to each sample: every worker does so for itself, so unpack it first if
there are many.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import BadSource
from headrace.sources import _tar
from headrace.sources._local import Local
from headrace.sources._paths import is_image_name, read_range
from headrace.sources._types import Ignored, Item, encoded, field_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INT64 = {"class": "label", "cls": "label", "count": "count", "id": "id", "index": "index", "inx": "inx"}
_STR = ("json", "text", "transcript", "txt")
_ARRAY = "npy"  # in a WebDataset an array beside the image, not the image
_MASK_WORDS = ("mask", "seg", "label")
_MOST_MEMBERS = 256  # of one sample
_LARGEST_TEXT = 2**26

Part = tuple[str, int, int]  # what follows the first dot, offset, bytes


class _Group(NamedTuple):
    """The files of one sample: their name up to its first dot, and what is wrong with one of them."""

    name: str
    parts: tuple[Part, ...]
    problem: str | None = None


class WebDatasetSource:
    """The samples of tar archives, archive by archive in the order given, in the order in which they stand."""

    kind = "webdataset"
    sequential = False
    classes = None

    def __init__(self, paths: Sequence[str | Path]) -> None:
        if not paths:
            raise BadSource("a WebDataset has at least one tar archive")
        self._paths = tuple(os.fspath(path) for path in paths)
        self._names = _names(self._paths)
        self._unpacked: Local[_tar.Unpacked] = Local()
        self.ignored = Ignored()
        path, first = self._first_sample()
        self._fields = dict(map(_field, first.parts))
        if len(self._fields) != len(first.parts):
            raise BadSource(
                f"{path}: two files of sample {first.name!r} make one field; rename one: {_ends(first.parts)}"
            )
        if "image" not in self._fields.values():
            raise BadSource(f"{path}: its first sample, {first.name!r}, has no image; it has {_ends(first.parts)}")

    def _first_sample(self) -> tuple[str, _Group]:
        """The first intact sample, which says which fields there are."""
        problem = ""
        for path in self._paths:
            try:
                for group in _groups(path, Ignored()):
                    if group.problem is None:
                        return path, group
                    problem = problem or group.problem
            except BadSource as error:
                problem = problem or str(error)
        raise BadSource(problem or f"{self._paths[0]} holds no samples")

    @property
    def fields(self) -> dict[str, str]:
        return self._fields

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
            if self._fields.get(name) != kind or name in sample:
                raise BadSource(f"{path}: sample {item.key!r} has a file '.{part[0]}' that the first sample has not")
            sample[name] = _value(kind, self._read(path, part), f"{path}: {item.key}.{part[0]}")
        missing = self._fields.keys() - sample.keys()
        if missing:
            raise BadSource(f"{path}: sample {item.key!r} lacks {', '.join(sorted(missing))}, which the first one has")
        return {name: sample[name] for name in self._fields}

    def _read(self, path: str, part: Part) -> bytes:
        _, offset, n_bytes = part
        if _tar.is_compressed(path):
            contents = self._unpacked.get(path, lambda: _tar.Unpacked(path)).read(offset, n_bytes)
        else:
            contents = read_range(path, offset, n_bytes)
        if len(contents) != n_bytes:
            raise BadSource(f"{path} has changed since it was listed: it ends before byte {offset + n_bytes}")
        return contents


def _groups(path: str, ignored: Ignored) -> Iterator[_Group]:
    """The samples of one archive. Those before a damaged place come first, and then the error."""
    base: str | None = None
    parts: list[Part] = []
    problem: str | None = None
    damage: BadSource | None = None
    members = _tar.members(path)
    while True:
        try:
            member = next(members)
        except StopIteration:
            break
        except BadSource as error:
            damage = error
            break
        folder, _, file_name = member.name.rpartition("/")
        stem, dot, end = file_name.partition(".")
        if member.problem is None and (not dot or not stem or _is_remark(member.name)):
            ignored.add(member.name)
            continue
        name = f"{folder}/{stem}" if folder else stem
        if name != base:
            if base is not None:
                yield _Group(base, tuple(parts), problem)
            base, parts, problem = name, [], None
        if len(parts) == _MOST_MEMBERS:
            problem = problem or f"{path}: sample {base!r} has more than {_MOST_MEMBERS} files"
            continue
        problem = problem or member.problem
        parts.append((end.lower(), member.offset, member.n_bytes))
    if base is not None:
        yield _Group(base, tuple(parts), problem)
    if damage is not None:
        raise damage


def _is_remark(name: str) -> bool:
    """Members such as `__meta__` describe the archive and are no samples."""
    return any(part.startswith("__") and part.endswith("__") for part in name.split("/"))


def _field(part: Part) -> tuple[str, str]:
    """The field, name and type, that a file is."""
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
    if len(contents) > _LARGEST_TEXT:
        raise BadSource(f"{where} has {len(contents)} bytes; a text or number has at most {_LARGEST_TEXT}")
    try:
        text = contents.decode()
        number = int(text) if kind == "int64" else 0
    except ValueError as error:
        raise BadSource(f"{where} is no valid {kind}: {error}") from None
    if not -(2**63) <= number < 2**63:
        raise BadSource(f"{where} holds {number}, which does not fit 64 bits")
    return number if kind == "int64" else text


def _names(paths: Sequence[str]) -> list[str]:
    """The archives' names as keys have them: the part of the paths that tells them apart."""
    whole = [Path(path).absolute() for path in paths]
    common = os.path.commonpath([path.parent for path in whole])
    return [path.relative_to(common).as_posix() for path in whole]


def _ends(parts: Sequence[Part]) -> str:
    return ", ".join(f".{part[0]}" for part in parts)
