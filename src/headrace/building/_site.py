# SPDX-License-Identifier: Apache-2.0
"""The destination while it is built: lock, temporary files, finished shards and their parts (spec/dataset.md §7)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from headrace.errors import BuildError
from headrace.records._checksum import CHUNK, crc32c, to_hex
from headrace.records._durable import TEMPORARY, put, sync_folder, whole_file
from headrace.records._manifest import INDEX, MANIFEST, SHARDS, Shard, shard_name
from headrace.records._schema import Field, arrow_schema

BUILDING = ".building"
_LOCK = "lock"
_OPTIONS = "build.json"
_META = b"headrace"


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of a finished shard, apart from its rows."""

    shard: Shard
    digest: str
    """Of the unit's keys and sizes in the source."""
    items: int
    source_bytes: int
    skipped: tuple[tuple[str, str], ...]


class Site:
    """A destination that this process has locked. Close it, or leave its `with` block, to let it go."""

    def __init__(
        self, folder: Path, options: dict[str, Any], fields: tuple[Field, ...], *, resume: bool, force: bool
    ) -> None:
        self.folder = folder
        self.is_finished = False
        """All but the last step was done: this very build was killed while it cleaned up."""
        self._schema = arrow_schema(fields)
        self._token = secrets.token_hex(4)
        self._building = folder / BUILDING
        with _explained(folder):
            (folder / SHARDS).mkdir(parents=True, exist_ok=True)
            self._building.mkdir(exist_ok=True)
            self._lock = _take_lock(self._building / _LOCK, folder)
        try:
            with _explained(folder):
                self._settle(options, resume=resume, force=force)
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what is half made and release the lock; finished shards stay."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                _remove(self._temporaries())
            os.close(self._lock)
            self._lock = -1

    def _settle(self, options: dict[str, Any], *, resume: bool, force: bool) -> None:
        _remove(self._temporaries())
        path = self._building / _OPTIONS
        before = _read_json(path)
        # Looked at under the lock: another builder may have finished since.
        if (self.folder / MANIFEST).exists() and not force:
            self.is_finished = resume and before == options
            if not self.is_finished:
                _remove_building(self.folder)
                refuse_finished(self.folder)
            return
        if before is not None and resume and not force and before != options:
            raise BuildError(
                f"{self.folder} holds an unfinished build with other options: {_difference(before, options)}; "
                f"build with those, or use --no-resume (resume=False) to start over"
            )
        if before is None or force or not resume:
            _clear(self.folder)
            with whole_file(path, self._token) as temporary:
                temporary.write_text(json.dumps(options, ensure_ascii=False, indent=1), encoding="utf-8")

    def _temporaries(self) -> Iterator[Path]:
        for folder in (self.folder, self.folder / SHARDS, self._building):
            yield from folder.glob(f".*{TEMPORARY}")

    def begin(self, number: int) -> Path:
        """Create the temporary file of a shard."""
        path = self.folder / SHARDS / f".{number:06d}.{self._token}{TEMPORARY}"
        with _explained(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        return path

    def finish(self, number: int, part: Part, n_bytes: int, rows: Iterable[bytes]) -> Part:
        """Sum, sync and name a shard, then its part. `part` lacks the shard, which this adds."""
        temporary = self.folder / SHARDS / f".{number:06d}.{self._token}{TEMPORARY}"
        path = self.folder / shard_name(number)
        with _explained(path):
            os.truncate(temporary, n_bytes)  # the padding after the last rendition
            checksum = _sum_file(temporary)
            put(temporary, path)
        batches = [batch for stream in rows for batch in pa.ipc.open_stream(stream)]
        table = pa.Table.from_batches(batches, schema=self._schema)
        shard = Shard(n_bytes, to_hex(checksum), table.num_rows)
        done = Part(shard, part.digest, part.items, part.source_bytes, part.skipped)
        named = self._part_path(number)
        with _explained(named), whole_file(named, self._token) as unnamed:
            described = table.replace_schema_metadata({_META: json.dumps(_part_json(done))})
            with pa.OSFile(str(unnamed), "wb") as stream, pa.ipc.new_file(stream, described.schema) as writer:
                writer.write_table(described)
        return done

    def finished(self, number: int) -> Part | None:
        """Give the part of a shard that an earlier run finished, if its shard is still whole."""
        try:
            with pa.memory_map(str(self._part_path(number))) as stream:
                part = _parse_part(pa.ipc.open_file(stream).schema.metadata[_META])
            n_bytes = (self.folder / shard_name(number)).stat().st_size
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
            return None
        return part if n_bytes == part.shard.n_bytes else None

    def rows(self, number: int) -> pa.Table:
        """Read the rows of a finished shard."""
        with pa.memory_map(str(self._part_path(number))) as stream:
            return pa.ipc.open_file(stream).read_all().replace_schema_metadata(None)

    def whole_file(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """Give a temporary path for a file of the dataset, see `records._durable`."""
        return whole_file(self.folder / name, self._token)

    def _part_path(self, number: int) -> Path:
        return self._building / f"{number:06d}.part"

    def complete(self, n_shards: int) -> None:
        """Remove all that served the building, and shards beyond the last; the lock goes last."""
        for path in (self.folder / SHARDS).glob("*.hrs"):
            if path.stem.isdecimal() and int(path.stem) >= n_shards:
                path.unlink()
        _remove_building(self.folder)
        sync_folder(self.folder)


def refuse_finished(folder: Path) -> None:
    """Raise if there is a dataset already."""
    if (folder / MANIFEST).exists():
        raise BuildError(f"{folder} is a finished dataset; choose another place, or use --force to replace it")


def refuse_strangers(folder: Path) -> None:
    """Raise if a folder holds anything that is not a dataset's, so that no build ever clears a user's files."""
    ours = {MANIFEST, INDEX, SHARDS, BUILDING}
    with _explained(folder):
        if folder.exists() and not folder.is_dir():
            raise BuildError(f"{folder} is a file; a dataset is a folder")
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
    # Names with a dot are no part of a dataset, and left alone.
    strange = next((name for name in names if name not in ours and not name.startswith(".")), None)
    if strange is not None:
        raise BuildError(f"{folder} holds {strange!r}, which is no part of a dataset; choose an empty or new folder")


def _clear(folder: Path) -> None:
    """Remove a dataset or the remains of a build, but not the lock; `dataset.json` goes first."""
    (folder / MANIFEST).unlink(missing_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    _remove((folder / SHARDS).glob("*.hrs"))
    _remove(path for path in (folder / BUILDING).glob("*") if path.name != _LOCK)


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)


def _remove_building(folder: Path) -> None:
    building = folder / BUILDING
    # Options first: without them what is left here counts for nothing.
    (building / _OPTIONS).unlink(missing_ok=True)
    _remove(path for path in building.glob("*") if path.name != _LOCK)
    (building / _LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # someone else has just come; they will see the finished dataset
        building.rmdir()


def _take_lock(path: Path, folder: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            os.close(handle)
            raise BuildError(f"{folder} is being built by {holder}; wait for it, or end it and build again") from None
        # A builder that finishes removes the lock: the file we hold may no longer be the one that others find.
        try:
            if os.path.samestat(os.fstat(handle), path.stat()):
                break
        except FileNotFoundError:
            path.parent.mkdir(exist_ok=True)
        os.close(handle)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _sum_file(path: Path) -> int:
    with path.open("rb") as stream:
        if stream.seek(0, 2) == 0:
            return crc32c(b"")
        checksum = 0
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            for start in range(0, len(view), CHUNK):
                with view[start : start + CHUNK] as block:
                    checksum = crc32c(block, checksum)
        return checksum


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn a system error at the destination into one that says what it means for the build."""
    try:
        yield
    except OSError as error:
        raise BuildError(
            f"{error.filename or path}: {error.strerror or error}; mend that and build again: finished shards are kept"
        ) from error


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return tree if isinstance(tree, dict) else None


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return "; ".join(f"{name} was {json.dumps(before.get(name))} and is {json.dumps(now.get(name))}" for name in names)


def _part_json(part: Part) -> dict[str, Any]:
    return {
        "bytes": part.shard.n_bytes,
        "checksum": part.shard.checksum,
        "samples": part.shard.samples,
        "digest": part.digest,
        "items": part.items,
        "source_bytes": part.source_bytes,
        "skipped": part.skipped,
    }


def _parse_part(text: bytes) -> Part:
    tree = json.loads(text)
    return Part(
        Shard(int(tree["bytes"]), str(tree["checksum"]), int(tree["samples"])),
        str(tree["digest"]),
        int(tree["items"]),
        int(tree["source_bytes"]),
        tuple((str(key), str(reason)) for key, reason in tree["skipped"]),
    )
