# SPDX-License-Identifier: Apache-2.0
"""Making and removing the folder of a rank: all of it is there at once, and nothing of it is left.

Only files that an exchange makes are ever removed, by their names: an exchange that was put into a folder with other
things in it, or a run that is called as a folder of the user's, must cost nobody a file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.offload.exchange._cell import pack_cell, read_cell
from headrace.offload.exchange._files import FOLDER_MODE, opened_folder, remove_file, replace_file
from headrace.offload.exchange._machine import is_gone
from headrace.offload.exchange._names import HOST, NEAR, RECIPE, ROWS, SUFFIX, TEMPORARY, batch_of, is_run, rank_of
from headrace.offload.exchange._status import NOBODY, HostRequest

MAX_LISTED = 4096
"""Names that are looked at in one folder. More of them were not made by trainings."""

# An offload worker that is just giving a batch its name may come in between; then the folder is looked through again.
_REMOVAL_SECONDS = 2.0
_BETWEEN_TRIES = 0.02
_TRIES = 3
_PLAN = re.compile(r"plan-\d{1,10}\.json|\.plan-\d{1,10}\.json\.[0-9a-f]+\.tmp")
_HALF_MADE = re.compile(r"\.rank-\d{1,9}\.[0-9a-f]+\.tmp")


def make_rank_folder(folder: Path, request: HostRequest, recipe: bytes, rows: npt.NDArray[np.int64] | None) -> None:
    """Make the folder of a rank under another name and rename it; one that is there already is removed."""
    building = folder.with_name(f".{folder.name}.{request.session}{TEMPORARY}")
    _make_folders(building)
    try:
        with opened_folder(building) as inside:
            replace_file(RECIPE, recipe, request.session, dir_fd=inside)
            if rows is not None:
                file = io.BytesIO()
                np.save(file, np.ascontiguousarray(rows, np.int64), allow_pickle=False)
                replace_file(ROWS, file.getvalue(), request.session, dir_fd=inside)
            replace_file(NEAR, pack_cell(NOBODY), request.session, dir_fd=inside)
            replace_file(HOST, pack_cell(request.to_json()), request.session, dir_fd=inside)
        remove_rank(folder)
        with opened_folder(folder.parent, 1) as run:
            os.rename(building.name, folder.name, src_dir_fd=run, dst_dir_fd=run)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_rank(building)
        leave_run(folder.parent)
        raise


def _make_folders(building: Path) -> None:
    for attempt in range(_TRIES):
        with contextlib.suppress(FileExistsError):
            building.parent.mkdir(FOLDER_MODE)
        try:
            with opened_folder(building.parent, 1) as run:
                try:
                    os.mkdir(building.name, FOLDER_MODE, dir_fd=run)
                except FileExistsError:  # left by an attempt that failed, or planted by somebody else
                    remove_rank(building)
                    os.mkdir(building.name, FOLDER_MODE, dir_fd=run)
                return
        except FileNotFoundError:  # the run's last rank has just left, and taken the run's folder along
            if attempt + 1 == _TRIES:
                raise


def remove_rank(folder: Path) -> None:
    """Remove a rank's folder, also what comes into it meanwhile. One that is not there is fine.

    Its cells go first: without them an offload worker writes nothing into it any more. OSError if it holds other files,
    or is a symbolic link: what that leads to is nobody's business.
    """
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while True:
        try:
            with opened_folder(folder, listing=True) as inside:
                for name in (HOST, NEAR, *os.listdir(inside)):  # noqa: PTH208 - of a handle, not of a path
                    if _is_ours(name):
                        remove_file(name, dir_fd=inside)
            with opened_folder(folder.parent, 1) as run:
                os.rmdir(folder.name, dir_fd=run)
                return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.ESTALE):
                raise
            foreign = [name for name in _names(folder, 2) if not _is_ours(name)]
            if foreign:
                raise OSError(errno.ENOTEMPTY, f"{foreign[0]!r} in it is no file of an exchange", str(folder)) from None
            if time.monotonic() > deadline:
                raise
        time.sleep(_BETWEEN_TRIES)


def _names(folder: Path, levels: int) -> list[str]:
    try:
        with opened_folder(folder, levels, listing=True) as inside:
            return os.listdir(inside)  # noqa: PTH208 - of a handle, not of a path
    except FileNotFoundError:
        return []


def _is_ours(name: str) -> bool:
    if name.endswith(SUFFIX):
        return batch_of(name, 0) is not None
    return name in (HOST, NEAR, RECIPE, ROWS) or (name.startswith(".") and name.endswith(TEMPORARY))


def leave_run(run: Path) -> None:
    """Remove a run of which no rank is left, and none is being made: its plans, and its folder."""
    with contextlib.suppress(OSError):
        names = _names(run, 1)
        if all(_PLAN.fullmatch(name) for name in names):
            with opened_folder(run, 1) as inside:
                for name in names:
                    remove_file(name, dir_fd=inside)
            run.rmdir()


def remove_plans(run: Path) -> None:
    """Remove what an earlier training of the same name has planned."""
    for name in _names(run, 1):
        if _PLAN.fullmatch(name):
            remove_plan(run / name)


def remove_plan(path: Path) -> None:
    """Remove one plan."""
    with opened_folder(path.parent, 1) as run:
        remove_file(path.name, dir_fd=run)


def write_plan(path: Path, content: bytes, token: str) -> None:
    """Write a plan, which other ranks see complete or not at all."""
    with opened_folder(path.parent, 1) as run:
        replace_file(path.name, content, token, dir_fd=run)


def rank_folders(exchange: Path) -> Iterator[tuple[Path, int]]:
    """Find all ranks of all runs. Lists folders, so it is for the start of things and for now and then."""
    for folder in _in_runs(exchange):
        rank = rank_of(folder.name)
        if rank is not None:
            yield folder, rank


def half_made_folders(exchange: Path) -> Iterator[Path]:
    """Find folders of ranks that are being made, or never will be."""
    return (folder for folder in _in_runs(exchange) if _HALF_MADE.fullmatch(folder.name))


def _in_runs(exchange: Path) -> Iterator[Path]:
    for run in _folders(exchange):
        if is_run(run.name):
            yield from _folders(run)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            listed = islice(entries, MAX_LISTED)
            return sorted(Path(entry.path) for entry in listed if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def sweep_dead(exchange: Path) -> None:
    """Remove what processes of this machine that have ended left behind."""
    for folder, _ in rank_folders(exchange):
        with contextlib.suppress(OSError, ValueError):
            document = read_cell(folder / HOST)
            if document is not None and is_gone(HostRequest.from_json(document).process):
                sweep_rank(folder)


def sweep_rank(folder: Path) -> None:
    """Remove what a host that died has left, as far as it can be removed."""
    with contextlib.suppress(OSError):
        remove_rank(folder)
    leave_run(folder.parent)
