# SPDX-License-Identifier: Apache-2.0
"""Replacing a finished dataset: the new one is built beside it, and takes its name when it is complete.

    photos.hr              the dataset, old until the swap and new after it
    .photos.hr.new         the new one while it is built; after the swap the old one, until it is removed
    .photos.hr.old         the old one between two renames, where a file system cannot exchange two names at once

A builder that is killed leaves the old or the new dataset complete under its name. Only between the two renames it is
`.photos.hr.old`; the next build puts it back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
from pathlib import Path

from headrace.records.durable import sync_folder

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_POSSIBLE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def aside(folder: Path) -> Path:
    """Where the successor of a dataset is built: on the same file system, so that a rename can put it in place."""
    whole = folder.resolve()
    return whole.parent / f".{whole.name}.new"


def recover(folder: Path) -> None:
    """Put a dataset back that a builder was about to replace when it was killed."""
    whole = folder.resolve()
    old = _old(whole)
    if old.exists() and not whole.exists():
        old.rename(whole)
        sync_folder(whole.parent)


def swap(folder: Path, building: str) -> None:
    """Give the dataset that was built aside its name, and remove the one that had it."""
    whole, new = folder.resolve(), aside(folder)
    if _exchange(new, whole):
        sync_folder(whole.parent)
        _discard(new, whole, building)
        return
    old = _old(whole)
    _discard(old, whole, building)
    whole.rename(old)
    try:
        new.rename(whole)
    except OSError:
        old.rename(whole)
        raise
    sync_folder(whole.parent)
    _discard(old, whole, building)


def keep_dotted(old: Path, folder: Path, building: str) -> None:
    """Move what belongs to the user, names that begin with a dot, from a dataset that was replaced to its successor."""
    for entry in list(old.iterdir()):
        if entry.name.startswith(".") and entry.name != building and not (folder / entry.name).exists():
            entry.rename(folder / entry.name)


def _discard(old: Path, folder: Path, building: str) -> None:
    """Remove a dataset that was replaced; what cannot be removed is left to the next build."""
    if old.exists():
        with contextlib.suppress(OSError):
            keep_dotted(old, folder, building)
            shutil.rmtree(old)


def _old(whole: Path) -> Path:
    return whole.parent / f".{whole.name}.old"


def _exchange(left: Path, right: Path) -> bool:
    """Exchange two names in one step; False where the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # a C library older than glibc 2.28
        return False
    if call(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_POSSIBLE:
        return False
    raise OSError(code, os.strerror(code), str(right))
