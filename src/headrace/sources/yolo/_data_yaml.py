# SPDX-License-Identifier: Apache-2.0
"""`data.yaml`: the splits, the class names and the keypoints of a YOLO dataset.

The file is not trusted: its paths must lead to places in its own folder. `path` and a leading `..`, which exports often
have, are left out if the place is not found with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from headrace.errors import BadSource
from headrace.sources._paths import check_inside, has_images, is_image_name, list_images, read_range
from headrace.sources._types import require

NAMES = ("data.yaml", "data.yml", "dataset.yaml")
SPLITS = ("train", "val", "test")
LABELS, LABEL_SUFFIX = "labels", ".txt"
_LISTED = ", ".join(SPLITS)
_MAX_BYTES = 1 << 20
_MAX_CLASSES = 1 << 16
_MAX_KEYPOINTS = 1 << 10


@dataclass(frozen=True, slots=True)
class DataYaml:
    """What a file says: the places of each split, relative to the root, the class names, and the keypoints per box."""

    root: str
    splits: dict[str, tuple[str, ...]]
    classes: tuple[str, ...] | None
    keypoints: tuple[int, int] | None = None
    """Number of keypoints, and numbers for each: 2 (x, y) or 3 (and visibility)."""


def find_yaml(path: Path) -> Path | None:
    """Return the `data.yaml` at a path, which may be the file itself."""
    if path.is_file():
        return path if path.suffix.lower() in (".yaml", ".yml") else None
    return next((path / name for name in NAMES if (path / name).is_file()), None)


def is_yolo(path: Path) -> bool:
    """Return whether there is a `data.yaml`, or a folder `images` beside a folder `labels` of text files."""
    if find_yaml(path) is not None:
        return True
    labels = path / LABELS
    if not (path / "images").is_dir() or not labels.is_dir():
        return False
    first = next(list_images(str(labels), accepts=lambda name: name.lower().endswith(LABEL_SUFFIX)), None)
    return first is not None and not has_images(str(labels))


def read_yaml(path: Path, only: str | None = None) -> DataYaml:
    """Read what a `data.yaml` says, or else `images` and `classes.txt`; only one split if given."""
    file = find_yaml(path)
    if file is None:
        return _without_yaml(path)
    yaml = require("yaml", "yolo", f"{file.name} of a YOLO dataset")
    contents = read_range(str(file), 0, _MAX_BYTES + 1)
    if len(contents) > _MAX_BYTES:
        raise BadSource(f"{file} must have at most {_MAX_BYTES} bytes")
    try:
        tree = yaml.safe_load(contents)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadSource(f"{file} must be YAML: {str(error)[:200]}") from None
    if not isinstance(tree, dict):
        raise BadSource(f"{file} must have entries such as 'train' and 'names'; it is {type(tree).__name__}")
    root = file.parent
    splits = {}
    for split in SPLITS:
        given = tree.get(split)
        places = [given] if isinstance(given, str) else given or []
        if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
            raise BadSource(f"{file}: '{split}' must be a path or a list of paths")
        if places and only in (None, split):
            splits[split] = tuple(_place(file, split, place, tree.get("path")) for place in places)
    if not splits:
        raise BadSource(f"{file} must have {only or f'at least one of {_LISTED}'}")
    return DataYaml(str(root), splits, _classes(file, tree), _keypoints(file, tree.get("kpt_shape")))


def _without_yaml(path: Path) -> DataYaml:
    if not (path / "images").is_dir():
        raise BadSource(f"{path} has neither a {NAMES[0]} nor a folder 'images'")
    splits: dict[str, tuple[str, ...]] = {
        name: (f"images/{name}",) for name in SPLITS if (path / "images" / name).is_dir()
    }
    names = path / "classes.txt"
    classes = None
    if names.is_file():
        text = read_range(str(names), 0, _MAX_BYTES).decode(errors="replace")
        classes = tuple(line.strip() for line in text.splitlines() if line.strip())
    return DataYaml(str(path), splits or {"": ("images",)}, classes)


def _place(file: Path, split: str, given: str, prefix: Any) -> str:
    """Return the place of a split relative to the root."""
    root, text = file.parent, given.replace("\\", "/")
    parts = [part for part in PurePosixPath(text).parts if part not in ("", ".")]
    inner = [part for part in parts if part != ".."]
    bases = [PurePosixPath(prefix.replace("\\", "/")).parts] if isinstance(prefix, str) else []
    tried = [(*base, *parts) for base in bases] + [tuple(parts), tuple(inner)]
    for candidate in tried:
        relative = "/".join(part for part in candidate if part != ".")
        if relative.startswith("/") or ".." in candidate or ":" in relative:
            continue
        if (root / relative).exists():
            check_inside(str(root / relative), str(root.resolve()))
            return relative or "."
    raise BadSource(
        f"{file}: '{split}' is {given!r}, which is not in {root}: move the images there, change the "
        f"path in the file, or choose another split with --split (split=...)"
    )


def _classes(file: Path, tree: dict[Any, Any]) -> tuple[str, ...] | None:
    names = tree.get("names")
    if names is None:
        return None
    if isinstance(names, dict) and all(isinstance(number, int) and 0 <= number < _MAX_CLASSES for number in names):
        return tuple(str(names.get(number, number)) for number in range(max(names, default=-1) + 1))
    if isinstance(names, list) and len(names) <= _MAX_CLASSES:
        return tuple(map(str, names))
    raise BadSource(f"{file}: 'names' must be a list, or map class numbers to names, of at most {_MAX_CLASSES} classes")


def _keypoints(file: Path, shape: Any) -> tuple[int, int] | None:
    if shape is None:
        return None
    if not isinstance(shape, list) or len(shape) != 2 or shape[1] not in (2, 3) or not _is_count(shape[0]):
        raise BadSource(f"{file}: 'kpt_shape' must be [number of keypoints, 2 or 3]; got {str(shape)[:80]}")
    return shape[0], shape[1]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_KEYPOINTS


def listed_images(root: str, file: str) -> list[str]:
    """Return the images that a text file lists, one per line, relative to the root."""
    contents = read_range(f"{root}/{file}", 0, _MAX_BYTES * 64).decode(errors="surrogateescape")
    lines = [line.strip().replace("\\", "/").removeprefix("./") for line in contents.splitlines()]
    return [line for line in lines if is_image_name(line)]
