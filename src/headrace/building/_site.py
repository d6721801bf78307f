# SPDX-License-Identifier: Apache-2.0
"""The destination while it is built: lock, temporary files, finished shards and their parts (spec/dataset.md §7)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from headrace.building._parts import Part, join_rows, read_part, sum_file, write_part
from headrace.building._swap import aside, keep_dotted, recover, swap
from headrace.errors import BuildError
from headrace.records.checksum import to_hex
from headrace.records.durable import TEMPORARY, put, sync_folder, whole_file
from headrace.records.manifest import INDEX, MANIFEST, SHARDS, Shard, shard_name
from headrace.records.schema import Field, arrow_schema

BUILDING = ".building"
_LOCK = "lock"
_OPTIONS = "build.json"
# What a build may change when it goes on: finished shards are the same either way, unless they skipped samples.
_CHANGEABLE = ("on_error",)


class Site:
    """A destination that this process has locked. Close it, or leave its `with` block, to let it go.

    A finished dataset that is to be replaced (`force`) stays as it is until its successor is complete: that is built
    in a folder beside it.
    """

    def __init__(
        self, folder: Path, options: dict[str, Any], fields: tuple[Field, ...], *, resume: bool, force: bool
    ) -> None:
        self.dest = folder
        """Where the dataset will be."""
        self._replaces = force and (folder / MANIFEST).exists()
        self.folder = aside(folder) if self._replaces else folder
        """Where it is built."""
        self.is_finished = False
        """The dataset is complete: another build, or this one before it was killed, has come to its end."""
        self._schema = arrow_schema(fields)
        self._token = secrets.token_hex(4)
        self._building = self.folder / BUILDING
        self._keeps_skipping = options.get("on_error") == "skip"
        with _explained(self.folder):
            (self.folder / SHARDS).mkdir(parents=True, exist_ok=True)
            self._building.mkdir(exist_ok=True)
            self._lock = _take_lock(self._building / _LOCK, folder)
        try:
            with _explained(self.folder):
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
            try:
                with contextlib.suppress(OSError):
                    _remove(self._temporaries())
            finally:
                os.close(self._lock)
                self._lock = -1

    def _settle(self, options: dict[str, Any], *, resume: bool, force: bool) -> None:
        _remove(self._temporaries())
        path = self._building / _OPTIONS
        before = _read_json(path)
        # Looked at under the lock: another builder may have finished since.
        if (self.folder / MANIFEST).exists() and not force:
            if not resume:
                remove_building(self.folder)
                refuse_finished(self.dest)
            self.is_finished = True
            return
        difference = _difference(before, options) if before is not None else ""
        if difference and resume and not force:
            raise BuildError(
                f"{self.folder} holds an unfinished build with other options: {difference}; "
                f"build with those, or use --no-resume (resume=False) to start over"
            )
        if before is None or difference or not resume or (force and not self._replaces):
            if self._replaces and before is None:  # killed after the swap: this is the dataset that was replaced
                keep_dotted(self.folder, self.dest, BUILDING)
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
            checksum = sum_file(temporary)
            put(temporary, path)
        table = join_rows(rows, self._schema)
        done = part.with_shard(Shard(n_bytes, to_hex(checksum), table.num_rows))
        named = self._part_path(number)
        with _explained(named), whole_file(named, self._token) as unnamed:
            write_part(unnamed, done, table)
        return done

    def reusable(self, number: int) -> Part | None:
        """Give the part of a shard that an earlier run finished, if the shard still has its checksum.

        A shard that skipped samples is not reusable once nothing is to be skipped.
        """
        read = read_part(self._part_path(number))
        path = self.folder / shard_name(number)
        try:
            if read is None or path.stat().st_size != read[0].shard.n_bytes:
                return None
            if read[0].skipped and not self._keeps_skipping:
                return None
            return read[0] if to_hex(sum_file(path)) == read[0].shard.checksum else None
        except OSError:
            return None

    def finished(self, number: int) -> tuple[Part, pa.Table]:
        """Give the part and the rows of a shard of this build."""
        path = self.folder / shard_name(number)
        read = read_part(self._part_path(number))
        if read is None or not path.exists() or path.stat().st_size != read[0].shard.n_bytes:
            raise BuildError(
                f"{path}: the shard or its part was changed or removed while the dataset was built; build again"
            )
        return read

    def whole_file(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """Give a temporary path for a file of the dataset, see `records._durable`."""
        return whole_file(self.folder / name, self._token)

    def _part_path(self, number: int) -> Path:
        return self._building / f"{number:06d}.part"

    def complete(self, n_shards: int) -> None:
        """Remove all that served the building, and shards beyond the last; then take the dataset's name."""
        for path in (self.folder / SHARDS).glob("*.hrs"):
            if path.stem.isdecimal() and int(path.stem) >= n_shards:
                path.unlink()
        sync_folder(self.folder / SHARDS)
        if self._replaces:
            # The options stay until after the swap: they tell a complete successor from a predecessor (`_settle`).
            try:
                swap(self.dest, BUILDING)
            except OSError as error:
                raise BuildError(
                    f"{self.dest} cannot be replaced: {error.strerror or error}; it is as it was, and the new dataset "
                    f"is complete in {self.folder}: move it, or correct that and build again"
                ) from error
        remove_building(self.dest)
        sync_folder(self.dest)


def refuse_finished(folder: Path, because: str = "") -> None:
    """Raise if there is a dataset already."""
    if (folder / MANIFEST).exists():
        raise BuildError(
            f"{folder} is a finished dataset{because}; choose another place, or use --force (force=True) to replace it"
        )


def refuse_strangers(folder: Path) -> None:
    """Raise if a folder holds anything that is not a dataset's, so that no build ever clears a user's files."""
    with _explained(folder):
        recover(folder)
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


def remove_building(folder: Path) -> None:
    """Remove what served the building of a finished dataset; the lock goes last."""
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


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn a system error at the destination into one that says what it means for the build."""
    try:
        yield
    except OSError as error:
        raise BuildError(
            f"{error.filename or path}: {error.strerror or error}; correct that and build again: "
            f"finished shards are kept"
        ) from error


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return tree if isinstance(tree, dict) else None


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    names = [name for name in {**before, **now} if name not in _CHANGEABLE and before.get(name) != now.get(name)]
    return "; ".join(f"{name} was {json.dumps(before.get(name))} and is {json.dumps(now.get(name))}" for name in names)
