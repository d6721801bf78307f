# SPDX-License-Identifier: Apache-2.0
"""Files of a source: listed in the order of their path's bytes, and read. No name and no link is trusted.

Links to files inside of the source are followed; links that leave it, links to folders, devices and pipes are refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import BadSource
from headrace.formats import IMAGE_SUFFIXES
from headrace.sources._types import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator


def join(root: str, relative: str) -> str:
    """A path for every sample: text, since making a `Path` costs ten times as much."""
    return f"{root}/{relative}"


def is_image_name(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def walk(root: str, below: str = "") -> Iterator[tuple[str, int]]:
    """The images under `root/below`: path relative to `root` and size, ascending by the path's bytes.

    Names that start with a dot are passed over, and so are files that are not named like an image. One folder's names
    are held at a time, and those of the folders above it.
    """
    real_root = os.path.realpath(root)
    pending = [_listing(root, below, real_root)]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif entry[1] is None:
            pending.append(_listing(root, entry[0], real_root))
        else:
            yield entry[0], entry[1]


def folders(path: str) -> list[str]:
    """Names of the folders in a folder, sorted by their bytes, without those that start with a dot."""
    with _scan(path) as entries:
        found = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    for entry in found:
        _refuse_folder_link(entry)
    return sorted((checked_name(entry.name, path) for entry in found), key=str.encode)


def _listing(root: str, below: str, real_root: str) -> Iterator[tuple[str, int | None]]:
    """Folders (size None) and images of one folder; a folder sorts as if its name ended in `/`, as full paths do."""
    path = join(root, below) if below else root
    found = []
    with _scan(path) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            is_folder = entry.is_dir()
            if is_folder or is_image_name(entry.name):
                name = checked_name(entry.name, path)
                found.append((name.encode() + b"/" * is_folder, name, entry))
    found.sort(key=lambda triple: triple[0])
    for sort_key, name, entry in found:
        relative = f"{below}/{name}" if below else name
        if sort_key.endswith(b"/"):
            _refuse_folder_link(entry)
            yield relative, None
        else:
            yield relative, _size(entry, real_root)


def _scan(path: str) -> os._ScandirIterator[str]:
    try:
        return os.scandir(path)
    except OSError as error:
        raise BadSource(f"{path} cannot be listed: {error.strerror}") from error


def _refuse_folder_link(entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():
        raise BadSource(f"{entry.path} is a link to a folder, which is not followed; give the folder itself")


def _size(entry: os.DirEntry[str], real_root: str) -> int:
    if entry.is_symlink():
        check_inside(entry.path, real_root)
    try:
        status = entry.stat()
    except OSError as error:
        raise BadSource(f"{entry.path} cannot be read: {error.strerror}") from error
    _check_regular(status, entry.path)
    return status.st_size


def _check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BadSource(f"{path} is a folder, device, pipe or socket and no file; take it out of the source")
    if status.st_size > MAX_FILE_BYTES:
        raise BadSource(f"{path} has {status.st_size} bytes; an image file has at most {MAX_FILE_BYTES}")


def check_inside(path: str, real_root: str) -> None:
    """Refuse a path whose links lead out of the source."""
    target = os.path.realpath(path)
    if os.path.commonpath((target, real_root)) != real_root:
        raise BadSource(f"{path} is a link that leaves the source (to {target}); copy the file in its place")


def file_size(root: str, relative: str) -> int:
    """The size of a file that some list names."""
    path = join(root, relative)
    try:
        status = Path(path).stat()
    except OSError as error:
        raise BadSource(f"{path} cannot be read: {error.strerror}") from error
    _check_regular(status, path)
    check_inside(path, os.path.realpath(root))
    return status.st_size


def checked_name(name: str, where: str) -> str:
    """A single name that is valid Unicode, as a key must be."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadSource(f"{where} holds a name that is not UTF-8: {os.fsencode(name)!r}; rename it") from None
    return name


def checked_relative(name: str, where: str) -> str:
    """A relative path, with `/`, from an archive or a list; refused if it could lead anywhere else."""
    checked_name(name, where)
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or ".." in parts or name.startswith("/") or name[1:2] == ":":
        raise BadSource(f"{where} names {name!r}; a path in a source is relative and has no '..', '\\' or drive")
    return "/".join(part for part in parts if part not in ("", "."))


def read_file(path: str, n_bytes: int) -> bytes:
    """A whole file, which is still as large as when it was listed."""
    contents = read_range(path, 0, n_bytes + 1)
    if len(contents) != n_bytes:
        raise BadSource(f"{path} had {n_bytes} bytes when it was listed and has changed since; list the source again")
    return contents


def read_range(path: str, offset: int, n_bytes: int) -> bytes:
    """Up to `n_bytes` from `offset`. Opens the file each time: nothing is shared between threads or after a fork."""
    try:
        # Not blocking: a pipe that took the file's place must not hang us.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb") as file:  # noqa: PTH123 - a descriptor is no path
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise BadSource(f"{path} is no longer a file")
            file.seek(offset)
            return file.read(n_bytes)
    except OSError as error:
        raise BadSource(f"{path} cannot be read: {error.strerror or error}") from error
