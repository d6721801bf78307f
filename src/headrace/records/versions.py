# SPDX-License-Identifier: Apache-2.0
"""Names of versions and of their files, and which versions a dataset has (spec/dataset.md §10).

`photos.hr` is the newest version of a dataset, `photos.hr@v3` its version 3.
"""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path

FIRST = 1
"""The number of the version that `headrace build` makes: `dataset.json`."""
MANIFEST = "dataset.json"
INDEX = "index.arrow"
VERSIONS = "versions"
INDEXES = "index"
CHANGES = "changes"
MAX_NUMBER = 10**9

_ADDRESS = re.compile(r"(.+)@v([1-9][0-9]{0,8})", re.DOTALL)
_FILE = re.compile(r"([0-9]{6,10})\.json")


def version_name(number: int) -> str:
    """Return the name of a version's file in the dataset."""
    return MANIFEST if number == FIRST else f"{VERSIONS}/{number:06d}.json"


def index_name(number: int) -> str:
    """Return the name of an index file; 0 is the one that `headrace build` makes."""
    return INDEX if number == 0 else f"{INDEXES}/{number:06d}.arrow"


def change_name(number: int) -> str:
    """Return the name of the file with the rows that a version drops, or the values that it changes."""
    return f"{CHANGES}/{number:06d}.arrow"


def split_address(path: str | PathLike[str]) -> tuple[Path, int | None]:
    """Split `photos.hr@v3` into the folder and the number; None if there is none, or if a folder has that name."""
    text = os.fspath(path).rstrip("/" if os.name == "posix" else "/\\") or os.fspath(path)
    match = _ADDRESS.fullmatch(text)
    if match is None or Path(text).exists():
        return Path(path), None
    return Path(match[1]), int(match[2])


def address(folder: Path, number: int) -> str:
    """Return `photos.hr@v3`."""
    return f"{folder}@v{number}"


def version_numbers(folder: Path) -> list[int]:
    """Return the numbers of the versions of a dataset in ascending order; none if it is not a dataset."""
    found = {FIRST} if (folder / MANIFEST).exists() else set()
    try:
        names = [path.name for path in (folder / VERSIONS).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        names = []
    for name in names:
        match = _FILE.fullmatch(name)
        if match is not None and FIRST < int(match[1]) < MAX_NUMBER and version_name(int(match[1])).endswith(name):
            found.add(int(match[1]))
    return sorted(found)
