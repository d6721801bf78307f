# SPDX-License-Identifier: Apache-2.0
"""Which files a verb works on, where each result goes, and how it gets there whole or not at all."""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Task:
    """One file to read and the one to write."""

    source: Path
    target: Path


@dataclass(slots=True)
class Tasks:
    """What is to be done, and what cannot be: a list of what was named and why."""

    ready: list[Task] = field(default_factory=list)
    refused: list[tuple[Path, str]] = field(default_factory=list)


def find_files(inputs: Sequence[str], suffixes: Collection[str]) -> Iterator[tuple[Path, Path] | tuple[Path, str]]:
    """Expand files, folders and globs to files with the folder that they were found under, or to what is wrong.

    Folders are searched to their depths for `suffixes`; a file that is named outright may have any suffix.
    """
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.suffix.lower() in suffixes and file.is_file())
            if not found:
                yield path, f"the folder holds no file that ends in {_few(suffixes)}"
            yield from ((file, path) for file in found)
        elif path.exists():
            yield path, path.parent
        elif glob.has_magic(text):
            matches = sorted(file for file in map(Path, _expand(text)) if file.is_file())
            if not matches:
                yield path, "nothing matches this pattern"
            yield from ((file, _fixed_part(path)) for file in matches)
        else:
            yield path, "there is no such file or folder"


def plan_tasks(
    inputs: Sequence[str], output: Path | None, *, suffixes: Collection[str], suffix: str, force: bool
) -> Tasks:
    """Say where each input's result goes.

    Without `output` it goes beside its source. An `output` that ends in `suffix` is the file itself, if there is but
    one source; any other is a folder, under which the sources' own folders are repeated.
    """
    tasks = Tasks()
    found = list(find_files(inputs, suffixes))
    is_file = output is not None and output.suffix.lower() == suffix and not output.is_dir()
    if is_file and (len(found) > 1 or Path(inputs[0]).is_dir()):
        raise ValueError(f"{output} is one file, and there are {len(found)} images to write; name a folder")
    owners: dict[Path, Path] = {}
    for source, base in found:
        if isinstance(base, str):
            tasks.refused.append((source, base))
            continue
        if output is None:
            target = source.with_suffix(suffix)
        elif is_file:
            target = output
        else:
            target = (output / source.relative_to(base)).with_suffix(suffix)
        if target in owners:
            if owners[target] != source:
                tasks.refused.append((source, f"{owners[target]} would be written to {target} too; convert it apart"))
        elif target.exists() and not force:
            tasks.refused.append((source, f"{target} exists already; use --force to replace it"))
        else:
            owners[target] = source
            tasks.ready.append(Task(source, target))
    return tasks


def write_whole(target: Path, content: bytes, *, force: bool) -> None:
    """Write a file under a temporary name and rename it; nobody ever sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident():x}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        if target.exists() and not force:
            raise FileExistsError(f"{target} has come into being meanwhile; use --force to replace it")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _expand(pattern: str) -> list[str]:
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 - a Path cannot glob a pattern that is absolute


def _fixed_part(pattern: Path) -> Path:
    """The folders of a pattern before its first wildcard."""
    fixed = Path(pattern.anchor)
    for part in pattern.relative_to(pattern.anchor).parts[:-1]:
        if glob.has_magic(part):
            break
        fixed /= part
    return fixed


def _few(suffixes: Collection[str]) -> str:
    few = sorted(suffixes)[:1] if len(suffixes) == 1 else [".png", ".jpg", ".tif", ".npy", "…"]
    return ", ".join(few)
