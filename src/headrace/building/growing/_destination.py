# SPDX-License-Identifier: Apache-2.0
"""A dataset that gets a new version: its lock, and the unfinished addition of an earlier run (spec/dataset.md §10)."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from headrace.building._destination import (
    BUILDING,
    GROWS,
    Destination,
    clear_building,
    is_finished,
    read_options,
    remove_building,
)
from headrace.building._destination import difference as difference_of
from headrace.errors import BuildError
from headrace.records.manifest import Manifest
from headrace.records.versions import VERSIONS, split_address, version_name


def growing_folder(path: Any) -> Path:
    """Return the folder of a dataset that is to grow; raise if it is none, or if the path names a version."""
    folder, number = split_address(path)
    if number is not None:
        raise BuildError(f"only the newest version of a dataset can be changed; got {path}: name {folder}")
    if not is_finished(folder):
        Manifest.load(folder)  # raises FileNotFoundError that says what is there
    return folder


class GrowingDestination(Destination):
    """A finished dataset that this process has locked. `base` is its newest version.

    Without options, only the lock is taken: an addition that was interrupted stays.
    """

    base: Manifest

    def __init__(self, folder: Path, options: dict[str, Any] | None, *, resume: bool = True) -> None:
        self._adds = options is not None
        manifest = Manifest.load(folder)
        super().__init__(folder, options or {}, manifest.fields, resume=resume, force=False)

    def _prepare(self, options: dict[str, Any], *, resume: bool, force: bool) -> None:
        del force
        self._remove_temporary()
        self.base = Manifest.load(self.folder)
        before = read_options(self.folder)
        if not self.has_unfinished:
            before = None  # nothing that could be continued
        if before is not None and self._is_done(before):
            # The earlier run was killed when all was done, except for removing its files.
            self.is_finished = self._adds and not self._difference(before, options)
            clear_building(self.folder)
            before = None
        self.first_shard = len(self.base.shards)
        if not self._adds or self.is_finished:
            return
        found = "" if before is None else self._difference(before, options)
        if found and resume:
            raise BuildError(
                f"{self.folder} contains an interrupted addition with other options: {found}; use those options, or "
                f"use --no-resume (resume=False) to remove what it wrote and start over"
            )
        if before is None or found or not resume:
            clear_building(self.folder)
            self._write_options({**options, GROWS: self.first_shard})

    def __exit__(self, *raised: object) -> None:
        """Remove temporary files and release the lock; what an interrupted addition has finished stays."""
        try:
            if not self.has_unfinished:
                with contextlib.suppress(OSError):
                    remove_building(self.folder)
        finally:
            super().__exit__(*raised)

    def _is_done(self, before: dict[str, Any]) -> bool:
        """Return whether these are the options of a build or addition whose shards a version has."""
        first = before.get(GROWS)
        return not isinstance(first, int) or first < len(self.base.shards)

    def _difference(self, before: dict[str, Any], options: dict[str, Any]) -> str:
        known = json.loads(json.dumps(options))
        return difference_of({name: value for name, value in before.items() if name != GROWS}, known)

    @property
    def number(self) -> int:
        """The number of the new version."""
        return self.base.number + 1

    @property
    def has_unfinished(self) -> bool:
        """Whether there is an interrupted addition that has finished shards."""
        return read_options(self.folder) is not None and any((self.folder / BUILDING).glob("*.part"))

    def publish(self, manifest: Manifest) -> None:
        """Write the file of the new version, which makes it a version."""
        (self.folder / VERSIONS).mkdir(exist_ok=True)
        name = version_name(manifest.number)
        if (self.folder / name).exists():
            raise BuildError(
                f"{self.folder / name} exists already; something else than headrace has written to {self.folder}"
            )
        with self.atomic_path(name) as path:
            path.write_bytes(manifest.to_bytes())
