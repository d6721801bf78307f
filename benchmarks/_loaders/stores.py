# SPDX-License-Identifier: Apache-2.0
"""The images of a case, stored as each loader needs them; made once and kept.

A store is made under another name and renamed when it is complete, so an interrupted run leaves no partial store.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from benchmarks._loaders import sources
from benchmarks._loaders.cases import Environments

_CHUNK = 1 << 24

# The store that all others of a source are made from.
ORIGINALS = {"photos": "png", "jpegs": "jpeg", "small": "npy"}
OURS = {"hri-fast": "hri:fast", "hri-dense": "hri:dense", "raw": "raw", "keep": "keep"}
# Stores that a peer's program makes: the program and its variant.
THEIRS = {
    "beton-raw": ("ffcv", "raw"),
    "beton-jpg": ("ffcv", "jpg"),
    "tar": ("webdataset", ""),
    "litdata": ("litdata", ""),
}


@dataclass(frozen=True)
class Scale:
    """How many images the sources have."""

    photos: int = 512
    distinct: int = 128
    small: int = 200_000

    def of(self, source: str) -> dict[str, int]:
        if source == "photos":
            return {"images": self.photos, "distinct": self.distinct}
        return {"images": self.small} if source == "small" else {}


QUICK = Scale(photos=64, distinct=16, small=4096)


@dataclass(frozen=True)
class Store:
    """A stored set of images."""

    path: Path
    images: int
    n_bytes: int


class Stores:
    """All stores below a folder; `data` holds the photographs that they are made from."""

    def __init__(self, folder: Path, data: Path, scale: Scale, environments: Environments) -> None:
        self._folder = folder
        self._origin = {"photos": data / "clic", "small": data / "clic", "jpegs": data / "jpeg_cc0"}
        self._scale = scale
        self._environments = environments

    def get(self, source: str, name: str) -> Store:
        """Return the store of that name; make it if it does not exist."""
        scale = self._scale.of(source)
        path = self._folder / "-".join([source, *map(str, scale.values())]) / name
        note = path.with_name(f"{name}.json")
        if not note.exists():
            original = None if name == ORIGINALS[source] else self.get(source, ORIGINALS[source])
            _complete(path, lambda dest: self._make(source, name, original, dest))
            images = original.images if original else _count(path)
            note.write_text(json.dumps({"images": images, "n_bytes": _bytes_below(path)}), encoding="utf-8")
        return Store(path, **json.loads(note.read_text(encoding="utf-8")))

    def _make(self, source: str, name: str, original: Store | None, dest: Path) -> None:
        scale = self._scale.of(source)
        if original is None and source == "photos":
            sources.make_photos(self._origin[source], dest, **scale)
        elif original is None and source == "small":
            sources.make_small(self._origin[source], dest, **scale)
        elif original is None:
            sources.take_classes(self._origin[source], dest)
        elif name in OURS:
            images: Any = _samples(original.path) if source == "small" else original.path
            headrace.build(images, dest, kind="auto" if source == "small" else "classes", format=OURS[name])
        else:
            program, variant = THEIRS[name]
            arguments = ["prepare", str(original.path), str(dest), f"--variant={variant}"]
            command = self._environments.command(program, arguments)
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own arguments


def warm(store: Store) -> None:
    """Read a store once, so that it is in the page cache."""
    for path in _files_below(store.path):
        with path.open("rb") as file:
            while file.read(_CHUNK):
                pass


def _complete(path: Path, make: Callable[[Path], None]) -> None:
    part = path.with_name(f"{path.name}.part")
    for old in (part, path):
        if old.is_dir():
            shutil.rmtree(old)
        old.unlink(missing_ok=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    make(part)
    part.rename(path)


def _samples(folder: Path) -> Iterator[dict[str, Any]]:
    images = np.load(folder / "images.npy", mmap_mode="r")
    for image, label in zip(images, np.load(folder / "labels.npy"), strict=True):
        yield {"image": np.asarray(image), "label": int(label)}


def _count(original: Path) -> int:
    array = original / "images.npy"
    return len(np.load(array, mmap_mode="r")) if array.exists() else len(_files_below(original))


def _files_below(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [Path(folder, name) for folder, _, names in os.walk(path) for name in names]


def _bytes_below(path: Path) -> int:
    return sum(file.stat().st_size for file in _files_below(path))
