# SPDX-License-Identifier: Apache-2.0
"""Files that are either whole or not there: written under another name, synced, renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".tmp"


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put(temporary: Path, path: Path) -> None:
    """Sync a finished temporary file and give it its name."""
    sync_file(temporary)
    temporary.replace(path)
    sync_folder(path.parent)


@contextmanager
def whole_file(path: Path, token: str) -> Iterator[Path]:
    """Give a temporary path to write to; it takes its name when the block ends well, and is removed when not."""
    temporary = path.parent / f".{path.name}.{token}{TEMPORARY}"
    try:
        yield temporary
        put(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
