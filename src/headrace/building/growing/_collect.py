# SPDX-License-Identifier: Apache-2.0
"""`headrace gc`: remove files that no version needs, and versions on request (spec/dataset.md §10)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from headrace import system
from headrace.building._destination import clear_building
from headrace.building.growing._destination import GrowingDestination, growing_folder
from headrace.errors import BuildError, CorruptDataset, UnsupportedDataset
from headrace.records.manifest import SHARDS, Manifest, shard_name
from headrace.records.versions import (
    CHANGES,
    INDEX,
    INDEXES,
    change_name,
    index_name,
    version_name,
    version_numbers,
)

_OURS = {
    SHARDS: re.compile(r"[0-9]{6,}\.hrs"),
    INDEXES: re.compile(r"[0-9]{6,}\.arrow"),
    CHANGES: re.compile(r"[0-9]{6,}\.arrow"),
}


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """What was removed, or with `dry_run` would be."""

    path: Path
    versions: tuple[int, ...]
    files: tuple[str, ...]
    """Version files are listed too."""
    n_bytes: int
    kept: tuple[int, ...]
    """The versions that remain."""
    dry_run: bool = False


def collect_garbage(
    dataset: str | PathLike[str],
    *,
    keep: Iterable[int] | None = None,
    unfinished: bool = False,
    dry_run: bool = False,
) -> GarbageReport:
    """Remove the files of a dataset that none of its versions needs.

    Nothing that a remaining version needs is removed. Shards whose samples are all dropped in every version are not
    needed.

    Args:
        dataset: The dataset.
        keep: Numbers of the versions to keep; the others are removed first. The newest is always kept. By default all
            are kept. A process that reads a removed version gets an error.
        unfinished: Also remove what an interrupted `headrace add` has written, which then cannot be resumed.
        dry_run: Remove nothing; return what would be removed.

    Raises:
        BuildError: A version that is to be kept does not exist or cannot be read, or another process writes.

    """
    folder = growing_folder(dataset)
    with GrowingDestination(folder, None) as place:
        numbers = version_numbers(folder)
        wanted = set(numbers) if keep is None else {*keep, numbers[-1]}
        unknown = sorted(wanted - set(numbers))
        if unknown:
            raise BuildError(f"{folder} has no version {unknown[0]}; it has {', '.join(map(str, numbers))}")
        removed = [number for number in numbers if number not in wanted]
        needed = {name for number in sorted(wanted) for name in _needed(folder, number)}
        in_progress = len(place.base.shards) if place.has_unfinished and not unfinished else None
        versions = [version_name(number) for number in removed]
        others = [name for name in _stored(folder) if name not in needed and not _is_new_shard(name, in_progress)]
        n_bytes = sum((folder / name).stat().st_size for name in (*versions, *others))
        if not dry_run:
            if unfinished:
                clear_building(folder)
            # Version files first: a version must never name a file that is gone.
            _remove(folder, versions)
            _remove(folder, others)
        return GarbageReport(
            folder, tuple(removed), (*versions, *others), n_bytes, tuple(sorted(wanted)), dry_run=dry_run
        )


def _needed(folder: Path, number: int) -> Iterator[str]:
    """Yield the files that a version needs."""
    try:
        manifest = Manifest.load(folder, number)
    except (CorruptDataset, UnsupportedDataset) as error:
        raise BuildError(
            f"version {number} cannot be read, so it is unknown which files it needs: {error}; restore its file, or "
            f"remove the version by not keeping it"
        ) from error
    yield from (index_name(file.number) for file in manifest.indexes)
    yield from (change_name(file.number) for file in (manifest.dropped, *manifest.relabeled.values()) if file)
    for shard_number, shard in enumerate(manifest.shards):
        if not 0 < shard.samples == shard.dropped:
            yield shard_name(shard_number)


def _stored(folder: Path) -> Iterator[str]:
    """Yield the names of the files of a dataset, except those of versions."""
    if (folder / INDEX).exists():
        yield INDEX
    for name, pattern in _OURS.items():
        inner = folder / name
        if inner.is_dir():
            yield from sorted(f"{name}/{path.name}" for path in inner.iterdir() if pattern.fullmatch(path.name))


def _is_new_shard(name: str, first: int | None) -> bool:
    """Return whether it is a shard of an interrupted addition."""
    return first is not None and name.startswith(f"{SHARDS}/") and int(Path(name).stem) >= first


def _remove(folder: Path, names: Iterable[str]) -> None:
    touched = set()
    for name in names:
        (folder / name).unlink(missing_ok=True)
        touched.add((folder / name).parent)
    for parent in touched:
        system.sync_folder(parent)
