# SPDX-License-Identifier: Apache-2.0
"""The destination of a build: its lock, temporary files, finished shards and their parts (spec/dataset.md §7)."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from headrace import system
from headrace.building._parts import Part, read_part, write_part
from headrace.building._swap import keep_hidden_files, path_of_new, recover, swap
from headrace.errors import BuildError
from headrace.files import TEMPORARY_SUFFIX, atomic_path, publish
from headrace.records.checksum import sum_file
from headrace.records.manifest import SHARDS, Shard, shard_name
from headrace.records.schema import Field, arrow_schema
from headrace.records.versions import CHANGES, INDEX, INDEXES, MANIFEST, VERSIONS, version_numbers

BUILDING = ".building"
_LOCK = "lock"
_OPTIONS = "build.json"
GROWS = "grows"
"""Member of `build.json` of an addition: the number of its first shard."""


class Destination:
    """A destination that this process has locked, until its `with` block ends.

    A finished dataset that is replaced (`force`) stays in place until the new one is complete, which is built in a
    folder next to it.
    """

    first_shard = 0
    """The number of the first shard that is built."""

    def __init__(
        self, folder: Path, options: dict[str, Any], fields: tuple[Field, ...], *, resume: bool, force: bool
    ) -> None:
        self.path = folder
        """Where the dataset will be."""
        self._replaces = force and is_finished(folder)
        self.folder = path_of_new(folder) if self._replaces else folder
        """Where it is built."""
        self.is_finished = False
        """True if the dataset is already complete, from another build or from this one before it was killed."""
        self._schema = arrow_schema(fields)
        self._token = secrets.token_hex(4)
        self._building = self.folder / BUILDING
        self._skips_bad = options.get("on_error") == "skip"
        with _as_build_error(self.folder):
            (self.folder / SHARDS).mkdir(parents=True, exist_ok=True)
            self._building.mkdir(exist_ok=True)
            self._lock = _take_lock(self._building / _LOCK, folder)
        self._replaced: int | None = None
        """The lock of the dataset that is replaced, so that it does not grow meanwhile."""
        try:
            with _as_build_error(self.folder):
                if self._replaces:
                    (folder / BUILDING).mkdir(exist_ok=True)
                    self._replaced = _take_lock(folder / BUILDING / _LOCK, folder)
                self._prepare(options, resume=resume, force=force)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove temporary files and release the lock; finished shards stay."""
        try:
            with contextlib.suppress(OSError):
                self._remove_temporary()
        finally:
            self._release()

    def _release(self) -> None:
        os.close(self._lock)
        replaced, self._replaced = self._replaced, None
        if replaced is not None:
            try:
                with contextlib.suppress(OSError):
                    if read_options(self.path) is None:
                        remove_building(self.path)
            finally:
                os.close(replaced)

    def _prepare(self, options: dict[str, Any], *, resume: bool, force: bool) -> None:
        self._remove_temporary()
        before = read_options(self.folder)
        # Checked while holding the lock: another builder may have finished in the meantime.
        if before is not None and GROWS in before and not self._replaces:
            refuse_interrupted_addition(self.folder)
        if is_finished(self.folder) and not force:
            if not resume:
                remove_building(self.folder)
                refuse_finished(self.path)
            self.is_finished = True
            return
        found = difference(before, options) if before is not None else ""
        if found and resume and not force:
            raise BuildError(
                f"{self.folder} contains an unfinished build with other options: {found}; "
                f"use those options, or use --no-resume (resume=False) to start over"
            )
        if before is None or found or not resume or (force and not self._replaces):
            if self._replaces and before is None:  # killed after the swap: this is the old dataset
                keep_hidden_files(self.folder, self.path, BUILDING)
            _clear(self.folder)
            self._write_options(options)

    def _remove_temporary(self) -> None:
        _remove(self._temporary_files())

    def _write_options(self, options: dict[str, Any]) -> None:
        with atomic_path(self._building / _OPTIONS, self._token) as temporary:
            temporary.write_text(json.dumps(options, ensure_ascii=False, indent=1), encoding="utf-8")

    def _temporary_files(self) -> Iterator[Path]:
        folders = (self.folder / name for name in (SHARDS, INDEXES, CHANGES, VERSIONS))
        for folder in (self.folder, *folders, self._building):
            yield from folder.glob(f".*{TEMPORARY_SUFFIX}")

    def begin(self, number: int) -> Path:
        """Create the temporary file of a shard."""
        path = self._temporary_shard(number)
        with _as_build_error(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        return path

    def finish(self, number: int, part: Part, n_bytes: int, rows: Iterable[bytes]) -> Part:
        """Compute the checksum of a shard, sync and rename it, then write its part, which gets the shard's facts."""
        temporary, path = self._temporary_shard(number), self.folder / shard_name(number)
        with _as_build_error(path):
            os.truncate(temporary, n_bytes)  # the padding after the last rendition
            checksum = sum_file(temporary)
            publish(temporary, path)
        batches = [batch for stream in rows for batch in pa.ipc.open_stream(stream)]
        table = pa.Table.from_batches(batches, schema=self._schema)
        done = replace(part, shard=Shard(n_bytes, checksum, table.num_rows))
        named = self._part_path(number)
        with _as_build_error(named), atomic_path(named, self._token) as unnamed:
            write_part(unnamed, done, table)
        return done

    def reusable(self, number: int) -> Part | None:
        """Return the part of a shard that an earlier run finished, if the shard still has its checksum.

        A shard that skipped samples is not reusable if this build does not skip.
        """
        read, path = self._read(number), self.folder / shard_name(number)
        if read is None or (read[0].skipped and not self._skips_bad):
            return None
        try:
            return read[0] if sum_file(path) == read[0].shard.checksum else None
        except OSError:
            return None

    def finished(self, number: int) -> tuple[Part, pa.Table]:
        """Return the part and the rows of a finished shard."""
        read = self._read(number)
        if read is None:
            raise BuildError(
                f"{self.folder / shard_name(number)}: the shard or its part was changed or removed while the dataset "
                f"was built; build again"
            )
        return read

    def _read(self, number: int) -> tuple[Part, pa.Table] | None:
        """Return the part and the rows of a shard; None if one of them is missing or the shard has another size."""
        read, path = read_part(self._part_path(number)), self.folder / shard_name(number)
        has_size = read is not None and path.exists() and path.stat().st_size == read[0].shard.n_bytes
        return read if has_size else None

    def atomic_path(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """Return a context manager with a temporary path, which is renamed to `name` at the end."""
        return atomic_path(self.folder / name, self._token)

    def _temporary_shard(self, number: int) -> Path:
        return self.folder / SHARDS / f".{number:06d}.{self._token}{TEMPORARY_SUFFIX}"

    def _part_path(self, number: int) -> Path:
        return self._building / f"{number:06d}.part"

    def complete(self, n_shards: int) -> None:
        """Remove the files of the build and shards beyond the last; then put a replacement in place."""
        for path in (self.folder / SHARDS).glob("*.hrs"):
            if path.stem.isdecimal() and int(path.stem) >= n_shards:
                path.unlink()
        system.sync_folder(self.folder / SHARDS)
        if self._replaces:
            # The options stay until after the swap: by them `_prepare` distinguishes the new dataset from the old one.
            try:
                swap(self.path, BUILDING)
            except OSError as error:
                raise BuildError(
                    f"{self.path} cannot be replaced: {error.strerror or error}; it is unchanged, and the new dataset "
                    f"is complete in {self.folder}: move it, or correct that and build again"
                ) from error
        remove_building(self.path)
        system.sync_folder(self.path)


def is_finished(folder: Path) -> bool:
    """Return whether a folder is a finished dataset."""
    return bool(version_numbers(folder))


def refuse_interrupted_addition(folder: Path) -> None:
    raise BuildError(
        f"{folder} contains an interrupted `headrace add`: run that again to finish it, or "
        f"`headrace gc --unfinished {folder}` to remove what it wrote"
    )


def refuse_finished(folder: Path, because: str = "") -> None:
    """Raise if there is a finished dataset."""
    if is_finished(folder):
        raise BuildError(
            f"{folder} is a finished dataset{because}; choose another folder, or use --force (force=True) to replace it"
        )


def check_destination(folder: Path, *, force: bool) -> None:
    """Refuse a finished dataset unless `force`, and a folder with other files, so that a build never removes those."""
    ours = {MANIFEST, INDEX, SHARDS, BUILDING, INDEXES, CHANGES, VERSIONS}
    with _as_build_error(folder):
        recover(folder)
        if folder.exists() and not folder.is_dir():
            raise BuildError(f"the destination must be a folder; {folder} is a file")
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
    # Names that begin with a dot are ignored.
    foreign = next((name for name in names if name not in ours and not name.startswith(".")), None)
    if foreign is not None:
        raise BuildError(
            f"{folder} contains {foreign!r}, which is not part of a dataset; choose an empty or new folder"
        )
    if not force and not (folder / BUILDING).exists():
        refuse_finished(folder)


def _clear(folder: Path) -> None:
    """Remove a dataset or an unfinished build, but not the lock; `dataset.json` first."""
    _remove(sorted((folder / VERSIONS).glob("*.json")))
    (folder / MANIFEST).unlink(missing_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    for name in (INDEXES, CHANGES):
        _remove((folder / name).glob("*.arrow"))
    _remove((folder / SHARDS).glob("*.hrs"))
    clear_building(folder)


def clear_building(folder: Path) -> None:
    """Remove the files of an unfinished build except its lock. Options first: without them, the others are ignored."""
    building = folder / BUILDING
    (building / _OPTIONS).unlink(missing_ok=True)
    _remove(path for path in building.glob("*") if path.name != _LOCK)


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)


def remove_building(folder: Path) -> None:
    """Remove the files of the build of a finished dataset; the lock last."""
    building = folder / BUILDING
    clear_building(folder)
    (building / _LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another builder has created its lock; it will see the finished dataset
        building.rmdir()


def _take_lock(path: Path, folder: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            system.lock_file(handle)
        except BlockingIOError:
            holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            os.close(handle)
            raise BuildError(f"{folder} is being built by {holder}; wait for it, or stop it and build again") from None
        # A builder that finishes removes the lock file: the locked file may no longer be the one at this path.
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
def _as_build_error(path: Path) -> Iterator[None]:
    """Turn an OSError at the destination into a BuildError that says what to do."""
    try:
        yield
    except OSError as error:
        raise BuildError(
            f"{error.filename or path}: {error.strerror or error}; correct that and build again: "
            f"finished shards are kept"
        ) from error


def read_options(folder: Path) -> dict[str, Any] | None:
    """Return the options of an unfinished build; None if there is none."""
    try:
        tree = json.loads((folder / BUILDING / _OPTIONS).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return tree if isinstance(tree, dict) else None


def difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return in words which options differ; an empty string if none does."""
    # on_error may change: finished shards are the same, unless they skipped samples.
    names = [name for name in {**before, **now} if name != "on_error" and before.get(name) != now.get(name)]
    return "; ".join(f"{name} was {json.dumps(before.get(name))} and is {json.dumps(now.get(name))}" for name in names)
