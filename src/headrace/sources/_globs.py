# SPDX-License-Identifier: Apache-2.0
"""The files that a path, a folder or a pattern means: `shards/*.tar`, `shard-{000..009}.tar`, `{a,b}/*.parquet`."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from headrace.errors import BadSource

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MAX_FILES = 10**6


def matching_files(path: Path, suffixes: tuple[str, ...], *, required: bool = True) -> list[str]:
    """The files with such names, sorted by their bytes; those of braces in the order that the braces give."""
    if path.is_dir():
        found = _listed(path, suffixes)
    elif path.exists():
        found = [str(path)]
    else:
        found = [file for pattern in expand_braces(str(path)) for file in _glob(pattern)]
    if not found and required:
        raise BadSource(f"{path} matches no {' or '.join(suffixes)} file")
    return found


def expand_braces(pattern: str) -> list[str]:
    """Write out `{000..009}` and `{a,b}` as a shell does; zeros in front of a number set its width."""
    found = [pattern]
    while True:
        match = _BRACES.search(found[0])
        if match is None:
            return found
        choices = _choices(match[1])
        if len(found) * len(choices) > _MAX_FILES:
            raise BadSource(f"{pattern} stands for more than {_MAX_FILES} files")
        found = [text.replace(match[0], choice, 1) for text in found for choice in choices]


def _choices(inside: str) -> list[str]:
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",")
    first, last = int(numbers[1]), int(numbers[2])
    if abs(last - first) >= _MAX_FILES:
        raise BadSource(f"{{{inside}}} stands for more than {_MAX_FILES} files")
    width = max(map(len, numbers.groups())) if "0" in (numbers[1][0], numbers[2][0]) else 1
    step = 1 if last >= first else -1
    return [f"{number:0{width}d}" for number in range(first, last + step, step)]


def _glob(pattern: str) -> list[str]:
    if not glob.has_magic(pattern):
        if not Path(pattern).exists():
            raise BadSource(f"{pattern} is not there")
        return [pattern]
    return sorted(glob.glob(pattern, recursive=True), key=os.fsencode)  # noqa: PTH207 - takes absolute patterns


def _listed(path: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Files with such a name in a folder, or in its folder `data`, where Hugging Face puts them."""
    for place in (path, path / "data"):
        if place.is_dir():
            found = [str(file) for file in place.iterdir() if file.name.lower().endswith(suffixes) and file.is_file()]
            if found:
                return sorted(found, key=os.fsencode)
    return []
