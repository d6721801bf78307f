# SPDX-License-Identifier: Apache-2.0
"""Splits: files or folders named train, val or test become one source with a field `split`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import BadSource
from headrace.sources._types import Ignored, Item

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.sources._types import Source

T = TypeVar("T")

SPLIT = "split"
NAMES = frozenset({"train", "training", "val", "valid", "validation", "test", "testing", "dev"})
_WORDS = re.compile(r"[A-Za-z]+")


class SplitSource:
    """Several sources with the same fields, one after the other, with a field `split`.

    Args:
        parts: The name of each split and its source.
        folders: The folder of each split, which is put before its keys; by default keys are not changed.

    """

    sequential = False

    def __init__(self, parts: Mapping[str, Source], folders: Mapping[str, str] | None = None) -> None:
        self._parts = dict(parts)
        self._folders = dict(folders or {})
        first_name, first = next(iter(self._parts.items()))
        self.kind, self.classes = first.kind, first.classes
        self.fields = {**first.fields} if SPLIT in first.fields else {**first.fields, SPLIT: "str"}
        for name, part in self._parts.items():
            for what in ("fields", "classes"):
                ours, theirs = getattr(first, what), getattr(part, what)
                if ours != theirs:
                    raise BadSource(
                        f"split {first_name!r} has the {what} {_shown(ours)}, and split {name!r} has {_shown(theirs)}; "
                        f"build one of them with --split {first_name} (split={first_name!r})"
                    )

    @property
    def ignored(self) -> Ignored:
        return Ignored.union(getattr(part, "ignored", None) for part in self._parts.values())

    def items(self) -> Iterator[Item]:
        for name, part in self._parts.items():
            for item in part.items():
                key = f"{self._folders[name]}/{item.key}" if name in self._folders else item.key
                yield Item(key, item.n_bytes, (name, item), item.stamp, item.problem)

    def load(self, item: Item) -> dict[str, object]:
        name, inner = item.locator
        return {SPLIT: name} | self._parts[name].load(inner)


def split_of(path: str) -> str | None:
    """Return the split in a file's name, as in `train-00000-of-00002.parquet`, or else that of its folder."""
    name, folder = Path(path).name, Path(path).absolute().parent.name.lower()
    found = {word for word in map(str.lower, _WORDS.findall(name)) if word in NAMES}
    if len(found) == 1:
        return found.pop()
    return folder if folder in NAMES else None


def group_files(paths: Sequence[str], split: str | None) -> dict[str, list[str]]:
    """Return the files of each split, or of one; empty if the files do not belong to several splits."""
    groups: dict[str | None, list[str]] = {}
    for path in paths:
        groups.setdefault(split_of(path), []).append(path)
    named = {name: files for name, files in groups.items() if name is not None}
    if split is not None:
        return {split: chosen(named, split, os.path.commonpath([*paths]))}
    if len(named) < 2:
        return {}
    if None in groups:
        raise BadSource(
            f"some files are named after the splits {', '.join(named)}, and {groups[None][0]} is not; choose one split "
            f"with --split {next(iter(named))} (split={next(iter(named))!r}), or select the files with a glob pattern"
        )
    return named


def chosen(found: Mapping[str, T], split: str, where: object) -> T:
    """Return the value of the chosen split."""
    if split not in found:
        raise BadSource(f"{where} has no split {split!r}; it has {', '.join(found) or 'none'}")
    return found[split]


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if value else "none"  # type: ignore[call-overload]
    return text if len(text) <= 200 else f"{text[:200]} …"
