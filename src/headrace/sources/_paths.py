# SPDX-License-Identifier: Apache-2.0
"""Files of a source: listed in the order of their path's bytes, and read. No name and no link is trusted.

Links to files inside of the source are followed; links that leave it, links to folders, devices and pipes are refused.
What is wrong with one file does not end a listing: the file is listed with its problem.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import BadSource
from headrace.formats import IMAGE_SUFFIXES
from headrace.sources._types import MAX_FILE_BYTES, Ignored, Item, printable

if TYPE_CHECKING:
    from collections.abc import Iterator


_LONGEST_PATH = 4096


class Found(NamedTuple):
    """A file of a source, by its path relative to the root."""

    path: str
    n_bytes: int
    stamp: int
    """Modification time in nanoseconds."""
    problem: str | None = None

    def item(self, *locator: object) -> Item:
        return Item(self.path, self.n_bytes, locator, self.stamp, self.problem)


def join(root: str, relative: str) -> str:
    """A path for every sample: text, since making a `Path` costs ten times as much."""
    return f"{root}/{relative}"


def is_image_name(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def walk(root: str, below: str = "", ignored: Ignored | None = None) -> Iterator[Found]:
    """The images under `root/below`, ascending by the bytes of their path.

    Names that start with a dot are passed over. Files that are not named like an image are counted in `ignored`. One
    folder's names are held at a time, and those of the folders above it.
    """
    real_root = os.path.realpath(root)
    pending = [_listing(root, below, real_root, ignored)]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif isinstance(entry, str):
            pending.append(_listing(root, entry, real_root, ignored))
        else:
            yield entry


def has_images(root: str, below: str = "") -> bool:
    return next(walk(root, below), None) is not None


def folders(path: str) -> list[str]:
    """Names of the folders in a folder, sorted by their bytes, without those that start with a dot."""
    with _scan(path) as entries:
        found = [entry for entry in entries if _is_folder(entry) and not entry.name.startswith(".")]
    for entry in found:
        if entry.is_symlink():
            raise BadSource(_folder_link(entry))
    return sorted((checked_name(entry.name, path) for entry in found), key=str.encode)


def _listing(root: str, below: str, real_root: str, ignored: Ignored | None) -> Iterator[str | Found]:
    """Folders (as text) and images of one folder; a folder sorts as if its name ended in `/`, as full paths do."""
    path = join(root, below) if below else root
    found = []
    with _scan(path) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            is_folder = _is_folder(entry)
            if is_folder or is_image_name(entry.name):
                found.append((os.fsencode(entry.name) + b"/" * is_folder, entry))
            elif ignored is not None:
                ignored.add(f"{below}/{entry.name}" if below else entry.name)
    found.sort(key=lambda pair: pair[0])
    for sort_key, entry in found:
        name = printable(entry.name)
        relative = f"{below}/{name}" if below else name
        if name != entry.name:
            yield Found(relative, 0, 0, f"{printable(path)} holds a name that is not UTF-8: {name}; rename it")
        elif not sort_key.endswith(b"/"):
            yield _stat(entry, relative, real_root)
        elif entry.is_symlink():
            yield Found(relative, 0, 0, _folder_link(entry))
        else:
            yield relative


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _scan(path: str) -> os._ScandirIterator[str]:
    try:
        return os.scandir(path)
    except OSError as error:
        raise BadSource(f"{path} cannot be listed: {error.strerror}") from error


def _folder_link(entry: os.DirEntry[str]) -> str:
    return f"{entry.path} is a link to a folder, which is not followed; give the folder itself"


def _stat(entry: os.DirEntry[str], relative: str, real_root: str) -> Found:
    try:
        if entry.is_symlink():
            check_inside(entry.path, real_root)
        status = entry.stat()
        _check_regular(status, entry.path)
    except OSError as error:
        return Found(relative, 0, 0, f"{entry.path} cannot be read: {error.strerror}")
    except BadSource as error:
        return Found(relative, 0, 0, str(error))
    return Found(relative, status.st_size, status.st_mtime_ns)


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


def require_file(path: str) -> None:
    """Refuse what is no file before it is opened: a pipe would be waited for."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        raise BadSource(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise BadSource(f"{path} is a folder, device, pipe or socket and no file")


def find(root: str, relative: str) -> Found:
    """A file that some list names: its size, or what is wrong with it."""
    path = join(root, relative)
    try:
        status = Path(path).stat()
        _check_regular(status, path)
        check_inside(path, os.path.realpath(root))
    except OSError as error:
        return Found(relative, 0, 0, f"{path} cannot be read: {error.strerror}")
    except ValueError as error:  # BadSource, and names that no system call takes
        return Found(relative, 0, 0, str(error))
    return Found(relative, status.st_size, status.st_mtime_ns)


def checked_name(name: str, where: str) -> str:
    """A single name that is valid Unicode, as a key must be."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="surrogatepass").decode(errors="backslashreplace")
        raise BadSource(f"{where} holds a name that is not UTF-8: {shown}; rename it") from None
    return name


def checked_relative(name: str, where: str) -> str:
    """A relative path, with `/`, from an archive or a list; refused if it could lead anywhere else."""
    checked_name(name, where)
    if len(name) > _LONGEST_PATH:
        raise BadSource(
            f"{where} names {name[:80]!r}…, a path of {len(name)} characters; at most {_LONGEST_PATH} are taken"
        )
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
