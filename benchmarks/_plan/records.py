# SPDX-License-Identifier: Apache-2.0
"""The part `records`: many small files, read cold one by one and as records; and what a few of them predict."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import headrace
from headrace.measuring import ReadRate, measure_raw_files, measure_records
from headrace.records import hash64

FILES = 20_000
_SAMPLED = 2000
_EDGE = 64
_FOLDERS = 20
_QUEUE_DEPTH = 8
_ROUNDS = 3
_ROUNDS_OF_SAMPLE = 9  # a short run is less exact


def run(store: Path, images: Path, *, files: int, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure the gain of records over files on a sample, which predicts it, and on all files."""
    small = _make_files(store / f"small-{files}", images, files)
    paths = sorted(small.rglob("*.png"))
    sample = sorted(paths, key=lambda path: hash64(path.name))[:_SAMPLED]
    log(f"reading {len(sample)} and then all {files} small files cold, one by one and as records")
    predicted = _rates(sample, _build(store / f"small-{files}-sample", small, sample), _ROUNDS_OF_SAMPLE)
    measured = _rates(paths, _build(store / f"small-{files}-all", small, paths), _ROUNDS)
    gains = [records.rate / raw.rate for raw, records in (predicted, measured)]
    return {
        "files": files,
        "sampled": len(sample),
        "image_bytes": measured[0].image_bytes,
        "queue_depth": _QUEUE_DEPTH,
        "raw_rate_predicted": predicted[0].rate,
        "raw_rate": measured[0].rate,
        "records_rate_predicted": predicted[1].rate,
        "records_rate": measured[1].rate,
        "gain_predicted": gains[0],
        "gain": gains[1],
        "error": gains[0] / gains[1] - 1,
    }


def _rates(paths: list[Path], dataset: Path, rounds: int) -> tuple[ReadRate, ReadRate]:
    """Read files and records alternately, each cold each time; return the median of each."""
    os.sync()  # pages that are not written yet cannot be dropped
    runs = [
        (measure_raw_files(paths, workers=_QUEUE_DEPTH), measure_records(dataset, workers=_QUEUE_DEPTH))
        for _ in range(rounds)
    ]
    raw, records = (sorted(each, key=lambda run: run.rate)[rounds // 2] for each in zip(*runs, strict=True))
    return raw, records


def _make_files(folder: Path, images: Path, files: int) -> Path:
    """Store random crops of the images as PNG files, in some folders."""
    complete = folder / "complete"
    if complete.exists():
        return folder
    suffixes = {".png", ".jpg", ".jpeg", ".webp"}
    found = sorted(path for path in images.rglob("*") if path.suffix.lower() in suffixes)[:24]
    if not found:
        raise ValueError(f"{images} must hold PNG, JPEG or WebP files; found none")
    originals = [np.asarray(Image.open(path).convert("RGB")) for path in found]
    rng = np.random.default_rng(0)
    for number in range(files):
        original = originals[number % len(originals)]
        top, left = (int(rng.integers(0, length - _EDGE + 1)) for length in original.shape[:2])
        path = folder / f"class-{number % _FOLDERS:02d}" / f"{number:06d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(original[top : top + _EDGE, left : left + _EDGE]).save(path, compress_level=1)
    complete.touch()
    return folder


def _build(dest: Path, root: Path, paths: list[Path]) -> Path:
    if not (dest / "dataset.json").exists():
        samples = ({"__key__": str(path.relative_to(root)), "image": path.read_bytes()} for path in paths)
        headrace.build(samples, dest, format="keep", verify=False)
    return dest
