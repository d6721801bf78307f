# SPDX-License-Identifier: Apache-2.0
"""Creates, finds and removes the folders of ranks and the plans of runs.

A rank's folder appears complete, by a rename. Only files with the names of an exchange are ever removed, so that an
exchange in a folder with other files, or a run with the name of a user's folder, never costs anybody a file.
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

from headrace.offload.exchange._documents import MALFORMED, NO_WORKER, HostRequest
from headrace.offload.exchange._files import (
    FOLDER_MODE,
    opened_folder,
    pack_cell,
    read_cell,
    read_small_file,
    remove_file,
    replace_file,
)
from headrace.offload.exchange._liveness import is_gone
from headrace.offload.exchange._names import (
    HOST_CELL,
    NAME_PATTERN,
    RECIPE,
    ROWS,
    SUFFIX,
    TEMPORARY,
    WORKER_CELL,
    batch_of,
    rank_of,
)

MAX_LISTED = 4096
"""Names that are looked at in one folder; no training creates more."""

# An offload worker may rename a batch while its folder is removed; then the removal is repeated.
_REMOVAL_SECONDS = 2.0
_RETRY_SECONDS = 0.02
_ATTEMPTS = 3
_MAX_ROWS_HEADER = 1 << 12
_PLAN = re.compile(r"plan-\d{1,10}\.json|\.plan-\d{1,10}\.json\.[0-9a-f]+\.tmp")
_UNFINISHED = re.compile(r"\.rank-\d{1,9}\.[0-9a-f]+\.tmp")


def make_rank_folder(folder: Path, request: HostRequest, recipe: bytes, rows: npt.NDArray[np.int64] | None) -> None:
    """Create the folder of a rank under a temporary name and rename it; an existing one is removed first."""
    building = folder.with_name(f".{folder.name}.{request.session}{TEMPORARY}")
    _make_folders(building)
    try:
        with opened_folder(building) as inside:
            replace_file(RECIPE, recipe, request.session, dir_fd=inside)
            if rows is not None:
                file = io.BytesIO()
                np.save(file, np.ascontiguousarray(rows, np.int64), allow_pickle=False)
                replace_file(ROWS, file.getvalue(), request.session, dir_fd=inside)
            replace_file(WORKER_CELL, pack_cell(NO_WORKER), request.session, dir_fd=inside)
            replace_file(HOST_CELL, pack_cell(request.to_json()), request.session, dir_fd=inside)
        remove_rank(folder)
        with opened_folder(folder.parent, 1) as run:
            os.rename(building.name, folder.name, src_dir_fd=run, dst_dir_fd=run)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_rank(building)
        remove_empty_run(folder.parent)
        raise


def max_rows(samples: int) -> int:
    """Return the maximum length of a selection: 16 rows per sample of the dataset, or 2^24 if that is more.

    Whoever makes a dataset of 2000 small images last for an hour repeats each of them some thousand times. 2^24 rows
    are 128 MB, which an offload worker holds once per recipe.
    """
    return max(1 << 24, 16 * samples)


def read_rows(path: Path, max_rows: int) -> npt.NDArray[np.int64] | None:
    """Read the rows of a selection; None if there is none, ValueError or OSError if it is not an array of int64."""
    try:
        content = read_small_file(path, _MAX_ROWS_HEADER + 8 * max_rows)
    except FileNotFoundError:
        return None
    try:
        file = io.BytesIO(content)
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file, max_header_size=_MAX_ROWS_HEADER)
        rows = np.frombuffer(content, np.int64, offset=file.tell())
        if dtype != np.int64 or shape != rows.shape:
            raise ValueError(f"{dtype} of shape {shape} in {len(content)} bytes")
    except MALFORMED as error:
        raise ValueError(f"{path} must be an array of int64 with one dimension: {error}") from None
    return rows


def _make_folders(building: Path) -> None:
    for attempt in range(_ATTEMPTS):
        with contextlib.suppress(FileExistsError):
            building.parent.mkdir(FOLDER_MODE)
        try:
            with opened_folder(building.parent, 1) as run:
                try:
                    os.mkdir(building.name, FOLDER_MODE, dir_fd=run)
                except FileExistsError:  # left by an attempt that failed, or put there by somebody else
                    remove_rank(building)
                    os.mkdir(building.name, FOLDER_MODE, dir_fd=run)
                return
        except FileNotFoundError:  # the last rank of the run has just closed and removed the folder of the run
            if attempt + 1 == _ATTEMPTS:
                raise


def remove_rank(folder: Path) -> None:
    """Remove a rank's folder if it exists, with files that appear in it meanwhile.

    Its cells are removed first: without them an offload worker writes nothing more. OSError if the folder contains
    other files or is a symbolic link.
    """
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while True:
        try:
            with opened_folder(folder, listing=True) as inside:
                for name in (HOST_CELL, WORKER_CELL, *os.listdir(inside)):  # noqa: PTH208 - of a handle, not of a path
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
                why = f"it contains {foreign[0]!r}, which is not a file of an exchange"
                raise OSError(errno.ENOTEMPTY, why, str(folder)) from None
            if time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_SECONDS)


def _names(folder: Path, levels: int) -> list[str]:
    try:
        with opened_folder(folder, levels, listing=True) as inside:
            return os.listdir(inside)  # noqa: PTH208 - of a handle, not of a path
    except FileNotFoundError:
        return []


def _is_ours(name: str) -> bool:
    if name.endswith(SUFFIX):
        return batch_of(name, 0) is not None
    return name in (HOST_CELL, WORKER_CELL, RECIPE, ROWS) or (name.startswith(".") and name.endswith(TEMPORARY))


def remove_empty_run(run: Path) -> None:
    """Remove the plans and the folder of a run, if no rank of it is left or being created."""
    with contextlib.suppress(OSError):
        names = _names(run, 1)
        if all(_PLAN.fullmatch(name) for name in names):
            remove_plans(run)
            run.rmdir()


def remove_plans(run: Path) -> None:
    """Remove the plans of a run, of an earlier training with the same name too."""
    with contextlib.suppress(FileNotFoundError), opened_folder(run, 1, listing=True) as inside:
        for name in os.listdir(inside):  # noqa: PTH208 - of a handle, not of a path
            if _PLAN.fullmatch(name):
                remove_file(name, dir_fd=inside)


def write_plan(path: Path, content: bytes, token: str) -> None:
    """Write a plan, which other ranks see complete or not at all."""
    with opened_folder(path.parent, 1) as run:
        replace_file(path.name, content, token, dir_fd=run)


def rank_folders(exchange: Path) -> Iterator[tuple[Path, int]]:
    """Find all ranks of all runs. Lists folders, so it is not for every batch."""
    for folder in _folders_in_runs(exchange):
        rank = rank_of(folder.name)
        if rank is not None:
            yield folder, rank


def unfinished_folders(exchange: Path) -> Iterator[Path]:
    """Find folders of ranks that are being created, or whose creation was interrupted."""
    return (folder for folder in _folders_in_runs(exchange) if _UNFINISHED.fullmatch(folder.name))


def _folders_in_runs(exchange: Path) -> Iterator[Path]:
    for run in _folders(exchange):
        if NAME_PATTERN.fullmatch(run.name):
            yield from _folders(run)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            listed = islice(entries, MAX_LISTED)
            return sorted(Path(entry.path) for entry in listed if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def remove_dead_ranks(exchange: Path) -> None:
    """Remove the files of hosts on this machine that have ended without removing them."""
    for folder, _ in rank_folders(exchange):
        with contextlib.suppress(OSError, ValueError):
            document = read_cell(folder / HOST_CELL)
            if document is not None and is_gone(HostRequest.from_json(document).process):
                remove_abandoned_rank(folder)


def remove_abandoned_rank(folder: Path) -> None:
    """Remove the files of a host that died, as far as possible. Never raises."""
    with contextlib.suppress(OSError):
        remove_rank(folder)
    remove_empty_run(folder.parent)
