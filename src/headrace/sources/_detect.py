# SPDX-License-Identifier: Apache-2.0
"""Find the source that reads a path or an iterable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import BadSource, HeadraceError
from headrace.formats import IMAGE_SUFFIXES
from headrace.sources import _splits, _tar, cityscapes, coco, dataset, folder, iterable, parquet, segmentation
from headrace.sources import webdataset as wds
from headrace.sources._paths import folders, has_images, is_image_name, list_images, matching_files
from headrace.sources.huggingface import source as huggingface
from headrace.sources.scientific import dicom, nifti, npy, tiff
from headrace.sources.yolo import is_yolo, open_yolo

if TYPE_CHECKING:
    from headrace.records import Dataset
    from headrace.sources._types import Source

_PATH_KINDS = (
    "folder",
    "classes",
    "segmentation",
    "webdataset",
    "parquet",
    "coco",
    "cityscapes",
    "dataset",
    "npy",
    "dicom",
    "nifti",
    "tiff",
    "yolo",
    "huggingface",
)
KINDS = ("auto", *_PATH_KINDS, "iterable")
_ARCHIVES = {"webdataset": _tar.SUFFIXES, "parquet": (".parquet",)}
_VOLUMES = {"dicom": dicom.SUFFIXES, "nifti": nifti.SUFFIXES, "tiff": tiff.OME_SUFFIXES}
"""Suffixes by which sources of volumes are detected."""
_ANNOTATIONS = ("annotations/instances_*.json", "instances_*.json", "_annotations.coco.json")


def open_source(
    source: str | Path | Dataset | Iterable[Mapping[str, object]],
    kind: str = "auto",
    *,
    split: str | None = None,
    mask_suffix: str | None = None,
) -> Source:
    """Open a source of images.

    Files or folders named after splits (train, val, test …) become one source with a field `split`.

    Args:
        source: A folder, a file, a glob such as `shards/*.tar` or `shard-{000..009}.tar`, a dataset, or an iterable of
            dicts.
        kind: One of `KINDS`; `"auto"` detects it from names.
        split: Open only this split, without the field `split`.
        mask_suffix: For `segmentation`: text that a mask's stem has after its image's, such as `_mask`.

    """
    if kind not in KINDS:
        raise BadSource(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if not isinstance(source, (str, Path)):
        return _open_object(source, kind, split)
    try:
        return _open_path(Path(source), kind, split, mask_suffix)
    except HeadraceError:
        raise
    except OSError as error:
        raise BadSource(f"{error.filename or source} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # third-party parsers may raise anything on damaged files
        raise BadSource(f"{source} cannot be read: {type(error).__name__}: {error}") from error


def _open_object(source: object, kind: str, split: str | None) -> Source:
    if kind in ("auto", "huggingface") and huggingface.is_object(source):
        return huggingface.open_object(source, split)
    if split is not None and not dataset.is_plain(source):
        raise BadSource(f"split needs a path or a dataset; got {type(source).__name__}")
    if kind in ("auto", "dataset") and dataset.is_plain(source):
        return dataset.DatasetSource(source, split=split)
    if kind not in ("auto", "iterable"):
        raise BadSource(f"a source of kind {kind!r} must be a path; got {type(source).__name__}")
    if not isinstance(source, Iterable):
        raise BadSource(f"a source must be a path or an iterable of dicts; got {type(source).__name__}")
    return iterable.IterableSource(source)


def _open_path(path: Path, kind: str, split: str | None, mask_suffix: str | None) -> Source:
    if mask_suffix is not None and kind == "auto":
        kind = "segmentation"
    if kind == "auto" and huggingface.is_saved(path):
        kind = "huggingface"
    if kind == "auto" and is_yolo(path):
        kind = "yolo"
    if kind in ("auto", "segmentation", "coco") or (split is not None and kind in ("folder", "classes")):
        by_split = _split_folders(path, kind, split)
        if by_split:
            return _open_splits(path, by_split, kind, split, mask_suffix)
    if kind == "auto":
        kind = _detect(path)
    return _open(path, kind, split, mask_suffix)


def _open(path: Path, kind: str, split: str | None, mask_suffix: str | None) -> Source:
    openers: dict[str, Callable[[], Source]] = {
        "folder": lambda: folder.FolderSource(path),
        "classes": lambda: folder.ClassFolderSource(path),
        "segmentation": lambda: _segmentation(path, split, mask_suffix),
        "webdataset": lambda: _from_files(path, kind, split, wds.WebDatasetSource),
        "parquet": lambda: _from_files(path, kind, split, parquet.ParquetSource),
        "coco": lambda: coco.CocoSource(_annotations(path, split)),
        "cityscapes": lambda: _cityscapes(path, split),
        "dataset": lambda: dataset.DatasetSource(path, split=split),
        "npy": lambda: npy.NpySource(path),
        "dicom": lambda: dicom.DicomSource(path),
        "nifti": lambda: nifti.NiftiSource(path),
        "tiff": lambda: tiff.TiffSource(path),
        "yolo": lambda: open_yolo(path, split),
        "huggingface": lambda: huggingface.open_saved(path, split),
    }
    if kind not in openers:
        raise BadSource(f"a source of kind {kind!r} must be an iterable of dicts; got a path")
    if split is not None and kind in ("folder", "classes", "npy", *_VOLUMES):
        raise BadSource(f"{path} has no split {split!r}: it has no folder of that name")
    if mask_suffix is not None and kind != "segmentation":
        raise BadSource(f"mask_suffix needs a source of kind 'segmentation'; got {kind!r}")
    return openers[kind]()


def _from_files(path: Path, kind: str, split: str | None, make: Callable[[list[str]], Source]) -> Source:
    files = matching_files(path, _ARCHIVES[kind])
    groups = _splits.group_files(files, split)
    if split is not None:
        return make(groups[split])
    single = make(files)
    if not groups or _splits.SPLIT in single.fields:
        return single
    parts = {name: make(found) for name, found in groups.items()}
    in_folders = len({os.path.dirname(file) for file in files}) > 1  # noqa: PTH120 - a Path per file is slow
    return _splits.SplitSource(parts, {name: name for name in parts} if in_folders else None)


def _split_folders(path: Path, kind: str, split: str | None) -> dict[str, Path]:
    """Return the folders named after splits; empty if there are fewer than two and none is requested."""
    if not path.is_dir() or dataset.is_dataset(path) or _is_cityscapes(path):
        return {}
    if kind == "auto" and (_instances(path) or matching_files(path, sum(_ARCHIVES.values(), ()), required=False)):
        return {}
    root = path
    names = folders(str(root))
    inner = [name for name in names if name.lower() in segmentation.IMAGE_FOLDERS]
    if (
        kind != "segmentation"
        and len(inner) == 1
        and not any(has_images(str(root), n) for n in names if n not in inner)
    ):
        root = path / inner[0]  # images/train, images/val
        names = folders(str(root))
    found = {name.lower(): root / name for name in names if name.lower() in _splits.NAMES}
    found = {name: place for name, place in found.items() if any(file.is_file() for file in place.rglob("*"))}
    if split is not None:
        return found if split in found else {}
    if len(found) < 2:
        return {}
    others = [name for name in names if name.lower() not in found and has_images(str(root), name)]
    if others or _holds_files(root):
        beside = others[0] if others else "images"
        raise BadSource(
            f"{root} contains the splits {', '.join(found)} and beside them {beside}; choose one split with "
            f"--split {next(iter(found))} (split={next(iter(found))!r}), or set the layout: --from folder or classes"
        )
    return found


def _open_splits(path: Path, found: dict[str, Path], kind: str, split: str | None, mask_suffix: str | None) -> Source:
    if split is not None:
        return _open_path(_splits.chosen(found, split, "the source"), kind, None, mask_suffix)
    kinds = {name: _detect(place) if kind == "auto" else kind for name, place in found.items()}
    if set(kinds.values()) == {"folder", "classes"} and not any(map(_holds_files, found.values())):
        kinds = dict.fromkeys(found, "classes")
    if len(set(kinds.values())) > 1:
        described = ", ".join(f"{name} is {kind}" for name, kind in kinds.items())
        raise BadSource(
            f"the splits are of different kinds ({described}); build one of them with --split {next(iter(found))} "
            f"(split={next(iter(found))!r})"
        )
    (only,) = set(kinds.values())
    if only == "classes":
        every = sorted({name for place in found.values() for name in folders(str(place))}, key=str.encode)
        parts: dict[str, Source] = {name: folder.ClassFolderSource(place, every) for name, place in found.items()}
    else:
        parts = {name: _open(place, only, None, mask_suffix) for name, place in found.items()}
    return _splits.SplitSource(parts, {name: place.relative_to(path).as_posix() for name, place in found.items()})


def _holds_files(path: Path) -> bool:
    """Return whether there are images in a folder itself, not in folders below it."""
    names = os.listdir(path)  # noqa: PTH208 - only names are needed
    return any(is_image_name(name) and not name.startswith(".") for name in names)


def _detect_file(path: Path) -> str:
    for kind, suffixes in {**_ARCHIVES, "coco": (".json",), **_VOLUMES}.items():
        if path.name.lower().endswith(suffixes):
            return kind
    found = (
        "is neither a folder nor a .tar, .tar.gz, .parquet, .json, .yaml, .dcm, .nii or .ome.tif file"
        if path.exists()
        else "does not exist"
    )
    raise BadSource(f"{path} {found}")


def _detect(path: Path) -> str:  # noqa: PLR0911 - one return per kind
    """Return the kind of source at a path, from names only."""
    if dataset.is_dataset(path):
        return "dataset"
    if not path.is_dir():
        return _detect_file(path)
    if _is_cityscapes(path):
        return "cityscapes"
    if _instances(path):
        return "coco"
    for kind, suffixes in _ARCHIVES.items():
        if matching_files(path, suffixes, required=False):
            return kind
    if segmentation.pair_of_folders(str(path)) is not None:
        return "segmentation"
    return _detect_folder(path)


def _detect_folder(path: Path) -> str:
    if npy.holds_tensors(path):
        return "npy"
    if kind := _volume_kind(path):
        return kind
    if _holds_files(path):
        return "folder"
    with_images = [name for name in folders(str(path)) if has_images(str(path), name)]
    if not with_images:
        raise BadSource(
            f"{path} has no known layout. Looked for, in this order: dataset.json (dataset), leftImg8bit/ and "
            "gtFine/ (cityscapes), data.yaml (yolo), state.json or dataset_dict.json (huggingface), "
            "annotations/instances_*.json or _annotations.coco.json (coco), *.tar or *.tar.gz (webdataset), "
            "*.parquet or data/*.parquet (parquet), images/ and masks/ (segmentation), *.dcm (dicom), "
            "*.nii or *.nii.gz (nifti), *.ome.tif (tiff), images (folder), folders with images (classes)"
        )
    return "classes" if len(with_images) > 1 else "folder"


def _volume_kind(path: Path) -> str | None:
    """Return the kind of volumes that a folder contains, if it contains nothing else."""
    suffixes = tuple(suffix for each in _VOLUMES.values() for suffix in each)
    known = (*suffixes, *IMAGE_SUFFIXES)
    first = next(list_images(str(path), accepts=lambda name: name.lower().endswith(known)), None)
    if first is None or not first.path.lower().endswith(suffixes):
        return None
    kind, own = next((kind, own) for kind, own in _VOLUMES.items() if first.path.lower().endswith(own))
    others = list_images(
        str(path), accepts=lambda name: name.lower().endswith(known) and not name.lower().endswith(own)
    )
    return kind if next(others, None) is None else None


def _segmentation(path: Path, split: str | None, mask_suffix: str | None) -> Source:
    """Open images and masks, with splits if both have folders named after splits: images/train and masks/train."""
    pair = segmentation.pair_of_folders(str(path)) if path.is_dir() else None
    names = folders(str(path / pair[0])) if pair is not None else []
    found = {name.lower(): name for name in names if name.lower() in _splits.NAMES}
    if split is not None:
        return segmentation.SegmentationSource(path, mask_suffix, _splits.chosen(found, split, path))
    if len(found) < 2 or len(found) < len(names):
        return segmentation.SegmentationSource(path, mask_suffix)
    parts = {split: segmentation.SegmentationSource(path, mask_suffix, name) for split, name in found.items()}
    return _splits.SplitSource(parts)


def _instances(path: Path) -> list[Path]:
    return sorted(found for pattern in _ANNOTATIONS for found in path.glob(pattern))


def _annotations(path: Path, split: str | None) -> Path:
    if not path.is_dir():
        return path
    found = _instances(path)
    if split is not None:
        found = [file for file in found if _splits.split_of(str(file)) == split]
    if len(found) != 1:
        names = [_splits.split_of(str(file)) for file in found]
        hint = f", or choose with --split {names[0]} (split={names[0]!r})" if names and all(names) else ""
        named = f" of split {split!r}" if split is not None else ""
        missing = f"has no instances_*.json or _annotations.coco.json{named}"
        choice = f"contains {', '.join(map(str, found))}; name one of them{hint}" if found else missing
        raise BadSource(f"{path} {choice}")
    return found[0]


def _is_cityscapes(path: Path) -> bool:
    return (path / cityscapes.IMAGES).is_dir() and (path / cityscapes.MASKS).is_dir()


def _cityscapes(path: Path, split: str | None) -> Source:
    """Open the root, or `leftImg8bit/<split>` in it."""
    if _is_cityscapes(path):
        return cityscapes.CityscapesSource(path, split=split)
    full = path.absolute()
    if full.parent.name == cityscapes.IMAGES and split in (None, full.name):
        return cityscapes.CityscapesSource(full.parent.parent, split=full.name)
    raise BadSource(f"{path} has no folders {cityscapes.IMAGES} and {cityscapes.MASKS}")
