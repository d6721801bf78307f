# SPDX-License-Identifier: Apache-2.0
"""List the members of a tar archive without reading them; members that are not plain files have a problem.

The standard library's `tarfile` parses the headers. It keeps a list of all members, takes a damaged header for the end
of the archive, and reads extended headers of any size; the code here prevents each of these.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from headrace.errors import BadSource
from headrace.sources._paths import checked_relative, reading, require_file
from headrace.sources._types import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIXES = (".tar", ".tar.gz", ".tgz")
_BLOCK = 512
_MAX_HEADER = 2**20
# Images do not compress: an archive that unpacks to more than both of these is a decompression bomb.
_MIN_LIMIT = 2**30
_MAX_RATIO = 100


class Member(NamedTuple):
    """A file in an archive, with the position of its bytes in the unpacked archive."""

    name: str
    offset: int
    n_bytes: int
    problem: str | None = None
    """Why it cannot be read; offset and size are 0 then."""


def is_compressed(path: str) -> bool:
    return not path.endswith(".tar")


def members(path: str) -> Iterator[Member]:
    """Yield the files of an archive in order; raise BadSource where the archive cannot be read further."""
    try:
        with closing(Archive(path)) as file:
            # `Archive` decompresses; tarfile sees a plain archive.
            with tarfile.open(fileobj=cast("IO[bytes]", file), mode="r:") as archive:
                while (header := archive.next()) is not None:
                    archive.members.clear()  # type: ignore[attr-defined]  # missing in typeshed
                    if not header.isdir():
                        yield _member(path, file, header)
                end = archive.offset
            _check_end(path, file, end)
    except BadSource:
        raise
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadSource(f"{path} is not a tar archive, or it is damaged: {error}") from error
    except OSError as error:
        raise BadSource(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # tarfile raises anything on forged headers: IndexError, ValueError, RecursionError
        raise BadSource(f"{path} has a damaged header: {type(error).__name__}: {error}") from error


def _member(path: str, file: Archive, header: tarfile.TarInfo) -> Member:
    where = f"{path}, at byte {header.offset},"
    try:
        name = checked_relative(header.name, where)
    except BadSource as error:
        shown = header.name.encode(errors="surrogatepass").decode(errors="backslashreplace")
        return Member(shown, 0, 0, str(error))
    problem = ""
    if not header.isreg() or header.issparse():
        problem = "must be a plain file; it is a link, device, pipe or sparse file"
    elif not 0 <= header.size <= MAX_FILE_BYTES:
        problem = f"must have at most {MAX_FILE_BYTES} bytes; it has {header.size}"
    if problem:
        return Member(header.name, 0, 0, f"{where} has the member {name!r}, which {problem}")
    file.check_extent(header.offset_data + header.size, name)
    return Member(name, header.offset_data, header.size)


def _check_end(path: str, file: Archive, end: int) -> None:
    file.seek(end)
    if any(file.read(_BLOCK)):
        raise BadSource(f"{path} has a damaged header at byte {end}; the archive cannot be read beyond it")


class Archive:
    """The bytes of an archive, decompressed as they are read; refuses sizes that only hostile headers have.

    Going back in a compressed archive starts from its beginning.
    """

    def __init__(self, path: str) -> None:
        require_file(path)
        self.path = path
        with reading(path):
            self._limit = Path(path).stat().st_size
            if is_compressed(path):
                self._file = cast("IO[bytes]", gzip.open(path))  # noqa: SIM115 - closed by close
                self._limit = max(_MIN_LIMIT, _MAX_RATIO * self._limit)
            else:
                self._file = Path(path).open("rb")  # noqa: SIM115 - closed by close

    def close(self) -> None:
        self._file.close()

    def read(self, n_bytes: int = -1) -> bytes:
        if not 0 <= n_bytes <= _MAX_HEADER:
            raise BadSource(
                f"{self.path}: a header must have at most {_MAX_HEADER} bytes; that at byte {self.tell()} has {n_bytes}"
            )
        return self._file.read(n_bytes)

    def read_range(self, offset: int, n_bytes: int) -> bytes:
        """Return up to `n_bytes` from an offset in the unpacked archive."""
        try:
            self._file.seek(offset)
            return self._file.read(n_bytes)
        except (OSError, EOFError, zlib.error) as error:
            raise BadSource(f"{self.path} is damaged: {error}") from error

    def seek(self, offset: int) -> int:
        if is_compressed(self.path):
            self.check_extent(offset, "the archive")
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()

    def check_extent(self, end: int, name: str) -> None:
        """Refuse a member that ends beyond the archive, or beyond the limit for decompressed archives."""
        if end > self._limit:
            kind = "unpacks to more than" if is_compressed(self.path) else "has only"
            raise BadSource(
                f"{self.path} {kind} {self._limit} bytes, but {name!r} ends at byte {end}: "
                "the archive is truncated or a decompression bomb"
            )
