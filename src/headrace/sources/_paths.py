# SPDX-License-Identifier: Apache-2.0
"""List and read the files of a source, without trusting names or links.

Files are listed in the order of the bytes of their paths. Links to files inside the source are followed. Links that
lead outside, links to folders, devices and pipes are refused. A file with a problem is listed with it, and the listing
continues. Patterns may be `shards/*.tar`, `shard-{000..009}.tar` or `{a,b}/*.parquet`.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headrace.errors import BadSource
from headrace.files import open_file
from headrace.formats import IMAGE_SUFFIXES
from headrace.sources._types import MAX_FILE_BYTES, Encoded, Ignored, Item, as_utf8, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MAX_FILES = 10**6
_MAX_PATH = 4096


class Found(NamedTuple):
    """A file of a source, by its path relative to the root."""

    path: str
    n_bytes: int
    stamp: int
    """Modification time in nanoseconds."""
    problem: str | None = None

    def item(self, *locator: object) -> Item:
        return Item(self.path, self.n_bytes, locator, self.stamp, self.problem)

    def unusable(self, problem: str) -> Item:
        """Return an item that cannot be loaded, for this reason if the file has no problem already."""
        return self._replace(problem=self.problem or problem).item()

    def with_mask(self, mask: Found) -> Found:
        """Return this image with the size, time and problem of both files."""
        return Found(self.path, self.n_bytes + mask.n_bytes, max(self.stamp, mask.stamp), self.problem or mask.problem)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn an OSError, or the ValueError for a path that no system call accepts, into a BadSource with the path."""
    try:
        yield
    except BadSource:
        raise
    except (OSError, ValueError) as error:
        raise BadSource(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def join(root: str, relative: str) -> str:
    """Join two paths as text: making a `Path` costs ten times as much."""
    return f"{root}/{relative}"


def is_image_name(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def list_images(
    root: str, below: str = "", ignored: Ignored | None = None, accepts: Callable[[str], bool] = is_image_name
) -> Iterator[Found]:
    """Yield the images under `root/below`, ordered by the bytes of their paths; `accepts` decides by the name.

    Names that start with a dot are skipped. Files that are not accepted are counted in `ignored`. Memory holds the
    names of one folder and of the folders above it.
    """
    real_root = os.path.realpath(root)
    pending = [_listing(root, below, real_root, ignored, accepts)]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif isinstance(entry, str):
            pending.append(_listing(root, entry, real_root, ignored, accepts))
        else:
            yield entry


def nonempty(found: Iterable[T], problem: str) -> Iterator[T]:
    """Yield everything; raise BadSource at the end if there was nothing."""
    empty = True
    for each in found:
        empty = False
        yield each
    if empty:
        raise BadSource(problem)


def has_images(root: str, below: str = "") -> bool:
    return next(list_images(root, below), None) is not None


def folders(path: str) -> list[str]:
    """Return the names of the folders in a folder, sorted by their bytes, without those that start with a dot."""
    with _scan(path) as entries:
        found = [entry for entry in entries if _is_folder(entry) and not entry.name.startswith(".")]
    for entry in found:
        if entry.is_symlink():
            raise BadSource(_folder_link(entry))
    return sorted((checked_name(entry.name, path) for entry in found), key=str.encode)


def _listing(
    root: str, below: str, real_root: str, ignored: Ignored | None, accepts: Callable[[str], bool]
) -> Iterator[str | Found]:
    """Yield folders (as text) and images of one folder; folders sort as if their names ended in `/`."""
    path = join(root, below) if below else root
    found = []
    with _scan(path) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            is_folder = _is_folder(entry)
            if is_folder or accepts(entry.name):
                found.append((os.fsencode(entry.name) + b"/" * is_folder, entry))
            elif ignored is not None:
                ignored.add(f"{below}/{entry.name}" if below else entry.name)
    found.sort(key=lambda pair: pair[0])
    for sort_key, entry in found:
        name = as_utf8(entry.name)
        relative = f"{below}/{name}" if below else name
        if name != entry.name:
            yield Found(relative, 0, 0, f"{as_utf8(path)} contains a name that is not UTF-8: {name}; rename it")
        elif not sort_key.endswith(b"/"):
            yield _found(relative, entry.path, real_root if entry.is_symlink() else None)
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
    return f"{entry.path} is a link to a folder, which is not followed; use the folder itself"


def find(root: str, relative: str) -> Found:
    """Return a file by its name, with its size or its problem."""
    return _found(relative, join(root, relative), os.path.realpath(root))


def _found(relative: str, path: str, real_root: str | None) -> Found:
    """Return a file with its size or its problem; with `real_root`, its links must not leave that folder."""
    try:
        with reading(path):
            if real_root is not None:
                check_inside(path, real_root)
            status = os.stat(path)  # noqa: PTH116 - a Path per file is slow
    except BadSource as error:
        return Found(relative, 0, 0, str(error))
    if not stat.S_ISREG(status.st_mode):
        problem = f"{path} must be a regular file; it is a folder, device, pipe or socket: remove it from the source"
        return Found(relative, 0, 0, problem)
    if status.st_size > MAX_FILE_BYTES:
        problem = f"{path} has {status.st_size} bytes; an image file must have at most {MAX_FILE_BYTES}"
        return Found(relative, 0, 0, problem)
    return Found(relative, status.st_size, status.st_mtime_ns)


def check_inside(path: str, real_root: str) -> None:
    """Refuse a path whose links lead out of the source."""
    target = os.path.realpath(path)
    if os.path.commonpath((target, real_root)) != real_root:
        raise BadSource(f"{path} is a link that leaves the source (to {target}); replace it by a copy of the file")


def require_file(path: str) -> None:
    """Refuse anything but a regular file before a library opens it: opening a pipe would wait for its writer."""
    with reading(path):
        os.close(open_file(path))


def checked_name(name: str, where: str) -> str:
    """Return a name if it is valid Unicode, as a key must be."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="surrogatepass").decode(errors="backslashreplace")
        raise BadSource(f"{where} contains a name that is not UTF-8: {shown}; rename it") from None
    return name


def checked_relative(name: str, where: str) -> str:
    """Normalize a relative path, with `/`, from an archive or a list; refuse it if it could lead anywhere else."""
    checked_name(name, where)
    if len(name) > _MAX_PATH:
        raise BadSource(
            f"{where} has the path {name[:80]!r}… of {len(name)} characters; at most {_MAX_PATH} are allowed"
        )
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or ".." in parts or name.startswith("/") or name[1:2] == ":":
        raise BadSource(f"{where} has the path {name!r}; a path must be relative, without '..', '\\' and drive letters")
    return "/".join(part for part in parts if part not in ("", "."))


def read_image(root: str, relative: str, n_bytes: int) -> Encoded:
    """Read an image file, which must have the size it had when it was listed."""
    path = join(root, relative)
    contents = read_range(path, 0, n_bytes + 1)
    if len(contents) != n_bytes:
        raise BadSource(f"{path} had {n_bytes} bytes when it was listed and has changed since; list the source again")
    return encoded(contents, path)


def read_range(path: str, offset: int, n_bytes: int) -> bytes:
    """Read up to `n_bytes` from `offset`. Opens the file each time: threads and forked processes share nothing."""
    with reading(path), open(open_file(path), "rb") as file:  # noqa: PTH123 - a descriptor is not a path
        file.seek(offset)
        return file.read(n_bytes)


def matching_files(path: Path, suffixes: tuple[str, ...], *, required: bool = True) -> list[str]:
    """Return the files of a folder or pattern, sorted by their bytes; those of braces in the order of the braces."""
    if path.is_dir():
        found = _with_suffix(path, suffixes)
    elif path.exists():
        found = [str(path)]
    else:
        found = [file for pattern in _expand_braces(str(path)) for file in _glob(pattern)]
    if not found and required:
        raise BadSource(f"{path} must contain or match at least one {' or '.join(suffixes)} file; it has none")
    return found


def _expand_braces(pattern: str) -> list[str]:
    """Expand `{000..009}` and `{a,b}` as a shell does; leading zeros of a number set its width."""
    found = [pattern]
    while (match := _BRACES.search(found[0])) is not None:
        choices = _choices(match[1])
        if len(found) * len(choices) > _MAX_FILES:
            raise BadSource(f"a pattern must stand for at most {_MAX_FILES} files; {pattern} stands for more")
        found = [text.replace(match[0], choice, 1) for text in found for choice in choices]
    return found


def _choices(inside: str) -> list[str]:
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",")
    first, last = int(numbers[1]), int(numbers[2])
    if abs(last - first) >= _MAX_FILES:
        raise BadSource(f"a pattern must stand for at most {_MAX_FILES} files; {{{inside}}} stands for more")
    width = max(map(len, numbers.groups())) if "0" in (numbers[1][0], numbers[2][0]) else 1
    step = 1 if last >= first else -1
    return [f"{number:0{width}d}" for number in range(first, last + step, step)]


def _glob(pattern: str) -> list[str]:
    if not glob.has_magic(pattern):
        if not Path(pattern).exists():
            raise BadSource(f"{pattern} does not exist")
        return [pattern]
    return sorted(glob.glob(pattern, recursive=True), key=os.fsencode)  # noqa: PTH207 - Path.glob rejects absolute ones


def _with_suffix(path: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files with a suffix in a folder, or in its folder `data`, where Hugging Face puts them."""
    for place in (path, path / "data"):
        if place.is_dir():
            found = [str(file) for file in place.iterdir() if file.name.lower().endswith(suffixes) and file.is_file()]
            if found:
                return sorted(found, key=os.fsencode)
    return []
