# SPDX-License-Identifier: Apache-2.0
"""From a path, or an iterable, to the source that reads it."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import BadSource
from headrace.sources import _tar, cityscapes, coco, dataset, folder, iterable, parquet, webdataset
from headrace.sources._paths import folders, is_image_name, walk

if TYPE_CHECKING:
    from headrace.records import Dataset
    from headrace.sources._types import Source

KINDS = ("auto", "folder", "classes", "webdataset", "parquet", "coco", "cityscapes", "dataset", "iterable")
_PARQUET = (".parquet",)
_SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing", "dev"}


def open_source(source: str | Path | Dataset | Iterable[Mapping[str, object]], kind: str = "auto") -> Source:
    """Open a dataset as people have it.

    Args:
        source: A folder, a file, a glob such as `shards/*.tar`, a dataset, or an iterable of dicts.
        kind: One of `KINDS`; `"auto"` looks at what is there.

    """
    if kind not in KINDS:
        raise BadSource(f"there is no kind of source {kind!r}; the kinds are {', '.join(KINDS)}")
    if not isinstance(source, (str, Path)):
        if kind in ("auto", "dataset") and dataset.is_plain(source):
            return dataset.DatasetSource(source)
        if kind not in ("auto", "iterable"):
            raise BadSource(f"a source of kind {kind!r} is a path, not {type(source).__name__}")
        if not isinstance(source, Iterable):
            raise BadSource(f"a source is a path or an iterable of dicts, not {type(source).__name__}")
        return iterable.IterableSource(source)
    path = Path(source)
    return _open(path, _detect(path) if kind == "auto" else kind)


def _open(path: Path, kind: str) -> Source:
    openers: dict[str, Callable[[], Source]] = {
        "folder": lambda: folder.FolderSource(path),
        "classes": lambda: folder.ClassFolderSource(path),
        "webdataset": lambda: webdataset.WebDatasetSource(_files(path, _tar.SUFFIXES)),
        "parquet": lambda: parquet.ParquetSource(_files(path, _PARQUET)),
        "coco": lambda: coco.CocoSource(_annotations(path)),
        "cityscapes": lambda: _cityscapes(path),
        "dataset": lambda: dataset.DatasetSource(path),
    }
    if kind not in openers:
        raise BadSource(f"a source of kind {kind!r} is an iterable of dicts, not a path")
    return openers[kind]()


def _detect(path: Path) -> str:
    """The kind of what is at a path, told from names alone."""
    if not path.is_dir():
        for suffixes, kind in ((_tar.SUFFIXES, "webdataset"), (_PARQUET, "parquet"), ((".json",), "coco")):
            if path.name.lower().endswith(suffixes):
                return kind
        found = "is neither a folder nor a .tar, .tar.gz, .parquet or .json file" if path.exists() else "is not there"
        raise BadSource(f"{path} {found}")
    if dataset.is_dataset(path):
        return "dataset"
    if _is_cityscapes(path):
        return "cityscapes"
    if _instances(path):
        return "coco"
    for suffixes, kind in ((_tar.SUFFIXES, "webdataset"), (_PARQUET, "parquet")):
        if _listed(path, suffixes):
            return kind
    return _detect_folder(path)


def _detect_folder(path: Path) -> str:
    root = str(path)
    with os.scandir(root) as entries:
        if any(is_image_name(entry.name) and not entry.name.startswith(".") for entry in entries):
            return "folder"
    with_images = [name for name in folders(root) if next(walk(root, name), None) is not None]
    if not with_images:
        raise BadSource(
            f"{path} is no source that is known. Looked for, in this order: dataset.json (dataset), leftImg8bit/ and "
            "gtFine/ (cityscapes), annotations/instances_*.json (coco), *.tar or *.tar.gz (webdataset), *.parquet or "
            "data/*.parquet (parquet), images (folder), folders with images (classes)"
        )
    if len(with_images) > 1 and all(name.lower() in _SPLITS for name in with_images):
        raise BadSource(
            f"{path} holds the splits {', '.join(with_images)}; give one of them, such as {path / with_images[0]}, "
            "or say what they are: 'folder' or 'classes'"
        )
    return "classes" if len(with_images) > 1 else "folder"


def _files(path: Path, suffixes: tuple[str, ...]) -> list[str]:
    """The files that a path, a folder or a glob means, sorted by their bytes."""
    if path.is_dir():
        found = _listed(path, suffixes)
    elif path.exists():
        found = [str(path)]
    else:
        found = sorted(glob.glob(str(path), recursive=True), key=os.fsencode)  # noqa: PTH207 - takes absolute patterns
    if not found:
        raise BadSource(f"{path} matches no {' or '.join(suffixes)} file")
    return found


def _listed(path: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Files with such a name in a folder, or in its folder `data`, where Hugging Face puts them."""
    for place in (path, path / "data"):
        if place.is_dir():
            found = [str(file) for file in place.iterdir() if file.name.lower().endswith(suffixes) and file.is_file()]
            if found:
                return sorted(found, key=os.fsencode)
    return []


def _instances(path: Path) -> list[Path]:
    return sorted([*path.glob("annotations/instances_*.json"), *path.glob("instances_*.json")])


def _annotations(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = _instances(path)
    if len(found) != 1:
        choice = f"holds {', '.join(map(str, found))}; give one of them" if found else "has no instances_*.json"
        raise BadSource(f"{path} {choice}")
    return found[0]


def _is_cityscapes(path: Path) -> bool:
    return (path / cityscapes.IMAGES).is_dir() and (path / cityscapes.MASKS).is_dir()


def _cityscapes(path: Path) -> Source:
    """The root, or `leftImg8bit/<split>` under it."""
    if _is_cityscapes(path):
        return cityscapes.CityscapesSource(path)
    whole = path.absolute()
    if whole.parent.name == cityscapes.IMAGES:
        return cityscapes.CityscapesSource(whole.parent.parent, split=whole.name)
    raise BadSource(f"{path} has no folders {cityscapes.IMAGES} and {cityscapes.MASKS}")
