# SPDX-License-Identifier: Apache-2.0
"""Replace a finished dataset: the new one is built next to it, and takes its name when it is complete.

    photos.hr              the dataset: the old one before the swap, the new one after it
    .photos.hr.new         the new one while it is built; after the swap the old one, until it is removed
    .photos.hr.old         the old one between two renames, where a file system cannot exchange two names at once

If the builder is killed, the old or the new dataset is complete under its name. Only between the two renames it is
`.photos.hr.old`; the next build restores it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
from pathlib import Path

from headrace.system import sync_folder

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def path_of_new(folder: Path) -> Path:
    """Return where the replacement of a dataset is built: on the same file system, so that it can be renamed."""
    full = folder.resolve()
    return full.parent / f".{full.name}.new"


def recover(folder: Path) -> None:
    """Restore a dataset that a builder was about to replace when it was killed."""
    full = folder.resolve()
    old = _path_of_old(full)
    if old.exists() and not full.exists():
        old.rename(full)
        sync_folder(full.parent)


def swap(folder: Path, building: str) -> None:
    """Give the new dataset its name, and remove the old one."""
    full, new = folder.resolve(), path_of_new(folder)
    if _exchange(new, full):
        sync_folder(full.parent)
        _remove_old(new, full, building)
        return
    old = _path_of_old(full)
    _remove_old(old, full, building)
    full.rename(old)
    try:
        new.rename(full)
    except OSError:
        old.rename(full)
        raise
    sync_folder(full.parent)
    _remove_old(old, full, building)


def keep_hidden_files(old: Path, folder: Path, building: str) -> None:
    """Move the user's files, whose names begin with a dot, from a replaced dataset to the new one."""
    for entry in list(old.iterdir()):
        if entry.name.startswith(".") and entry.name != building and not (folder / entry.name).exists():
            entry.rename(folder / entry.name)


def _remove_old(old: Path, folder: Path, building: str) -> None:
    """Remove a replaced dataset; what cannot be removed is left to the next build."""
    if old.exists():
        with contextlib.suppress(OSError):
            keep_hidden_files(old, folder, building)
            shutil.rmtree(old)


def _path_of_old(full: Path) -> Path:
    return full.parent / f".{full.name}.old"


def _exchange(left: Path, right: Path) -> bool:
    """Exchange two names in one step; return False if the system or the file system does not support it."""
    if sys.platform != "linux":
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # glibc before 2.28
        return False
    if call(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(right))
