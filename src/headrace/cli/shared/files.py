# SPDX-License-Identifier: Apache-2.0
"""Which files a verb reads, and which file each result is written to."""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class FileTask(NamedTuple):
    """One file to read and the file to write."""

    source: Path
    target: Path


def find_files(inputs: Sequence[str], suffixes: Collection[str]) -> Iterator[tuple[Path, Path] | tuple[Path, str]]:
    """Expand files, folders and globs: yield each file with the folder it was found under, or a path with a problem.

    Folders are searched recursively for `suffixes`; a file that is given by name may have any suffix.
    """
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.suffix.lower() in suffixes and file.is_file())
            if not found:
                yield path, f"the folder contains no {_examples(suffixes)} file"
            yield from ((file, path) for file in found)
        elif path.exists():
            yield path, path.parent
        elif glob.has_magic(text):
            found_names = glob.glob(text, recursive=True)  # noqa: PTH207 - Path.glob rejects absolute patterns
            matches = sorted(file for file in map(Path, found_names) if file.is_file())
            if not matches:
                yield path, "no file matches this pattern"
            yield from ((file, _fixed_part(path)) for file in matches)
        else:
            yield path, "no such file or folder"


def plan_tasks(
    inputs: Sequence[str], output: Path | None, *, suffixes: Collection[str], suffix: str, force: bool
) -> tuple[list[FileTask], list[tuple[Path, str]]]:
    """Return the files to convert with their targets, and the inputs that cannot be converted with the reasons.

    Without `output`, each target is next to its source. An `output` that ends in `suffix` is the target file, for a
    single source; any other is a folder that gets the folder structure of the sources.
    """
    tasks: list[FileTask] = []
    refused: list[tuple[Path, str]] = []
    found = list(find_files(inputs, suffixes))
    is_file = output is not None and output.suffix.lower() == suffix and not output.is_dir()
    if is_file and (len(found) > 1 or Path(inputs[0]).is_dir()):
        raise ValueError(f"{output} is a file name, which is for one input image; got {len(found)}: name a folder")
    owners: dict[Path, Path] = {}
    for source, base in found:
        if isinstance(base, str):
            refused.append((source, base))
            continue
        if output is None:
            target = source.with_suffix(suffix)
        elif is_file:
            target = output
        else:
            target = (output / source.relative_to(base)).with_suffix(suffix)
        if target in owners:
            if owners[target] != source:
                refused.append((source, f"{owners[target]} is also written to {target}; convert it separately"))
        elif target.exists() and not force:
            refused.append((source, f"{target} already exists; use --force to overwrite it"))
        else:
            owners[target] = source
            tasks.append(FileTask(source, target))
    return tasks, refused


def _fixed_part(pattern: Path) -> Path:
    """Return the folders of a pattern before its first wildcard."""
    fixed = Path(pattern.anchor)
    for part in pattern.relative_to(pattern.anchor).parts[:-1]:
        if glob.has_magic(part):
            break
        fixed /= part
    return fixed


def _examples(suffixes: Collection[str]) -> str:
    return ", ".join(suffixes) if len(suffixes) == 1 else ".png, .jpg, .tif, .npy or other image"
