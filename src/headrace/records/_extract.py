# SPDX-License-Identifier: Apache-2.0
"""Write renditions to files. Keys are not trusted: all files are written below the given folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import IO

from headrace import formats
from headrace.errors import CorruptImage
from headrace.records._dataset import Dataset
from headrace.records.checksum import crc32c
from headrace.records.rendition import Rendition

_MAX_PART_BYTES = 200
_BAD = re.compile(r'[\x00-\x1f\x7f<>:"|?*]')
# Device names of Windows, with any suffix.
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?\Z")


def safe_name(key: str) -> str:
    """Return a relative path for a key, without `..`, root or device names. Never empty."""
    parts = []
    for part in re.split(r"[/\\]", key):
        clean = _BAD.sub("_", part).rstrip(" .")
        if not clean:
            continue
        if _DEVICES.match(clean):
            clean = f"_{clean}"
        encoded = clean.encode(errors="replace")
        if len(encoded) > _MAX_PART_BYTES:
            clean = encoded[-_MAX_PART_BYTES:].decode(errors="ignore")
        parts.append(clean)
    return "/".join(parts) or "_"


def extract(
    dataset: Dataset,
    folder: str | PathLike[str],
    *,
    fields: list[str] | None = None,
    format: str | None = None,  # noqa: A002
) -> Iterator[Path]:
    """Write the renditions of a dataset or view below a folder, and yield the path of each file.

    A file is named after the key of its sample, with the suffix of its format; if that file exists, its index is added.
    Several fields get a folder each. Files are never overwritten.
    """
    pixel_fields = [name for name, kind in dataset.fields.items() if kind in ("image", "mask")]
    chosen = pixel_fields if fields is None else fields
    for name in chosen:
        if name not in pixel_fields:
            raise ValueError(f"{name!r} must be an image or mask field; those are {', '.join(pixel_fields) or 'none'}")
    root = Path(folder)
    for index in range(len(dataset)):
        for name in chosen:
            rendition = dataset.rendition(index, name, format=format)
            suffix = formats.get(rendition.format.partition(":")[0]).suffix
            relative = Path(safe_name(dataset.key(index)))
            base = root / safe_name(name) / relative if len(chosen) > 1 else root / relative
            stem = base.with_suffix("") if base.suffix.lower() in formats.IMAGE_SUFFIXES else base
            yield _write_new(stem, suffix, index, dataset, rendition)


def _write_new(stem: Path, suffix: str, index: int, dataset: Dataset, rendition: Rendition) -> Path:
    stem.parent.mkdir(parents=True, exist_ok=True)
    for path in (stem.with_name(stem.name + suffix), stem.with_name(f"{stem.name}.{index}{suffix}")):
        try:
            stream = path.open("xb")
        except FileExistsError:
            continue
        try:
            with stream:
                _copy(dataset, index, rendition, stream)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path
    raise FileExistsError(f"{path} exists already; extract to an empty folder")


def _copy(dataset: Dataset, index: int, rendition: Rendition, stream: IO[bytes]) -> None:
    """Copy stored bytes in pieces, because the length in the index is not trusted."""
    checksum = 0
    for block in dataset.read_blocks(rendition):
        checksum = crc32c(block, checksum)
        stream.write(block)
    if checksum != rendition.checksum:
        raise CorruptImage(
            f"sample {dataset.key(index)!r}, at offset {rendition.offset} of {dataset.path / rendition.shard}: "
            f"the checksum of the bytes does not match the index; the file was not written"
        )
