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
from headrace.profiling import ReadRate, measure_raw_files, measure_records
from headrace.records import hash64

FILES = 20_000
SAMPLED = 2000
EDGE = 64
_FOLDERS = 20
_DEPTH = 8
_ROUNDS = 3
_ROUNDS_OF_FEW = 9  # a short run says less


def run(folder: Path, images: Path, *, files: int, log: Callable[[str], None]) -> dict[str, Any]:
    """The gain of records over files, predicted from a sample and measured on all."""
    small = make_files(folder / f"small-{files}", images, files, log)
    paths = sorted(small.rglob("*.png"))
    sample = sorted(paths, key=lambda path: hash64(path.name))[: min(SAMPLED, files)]
    few = _build(folder / f"small-{files}-few", small, sample, log)
    everything = _build(folder / f"small-{files}-all", small, paths, log)
    log(f"reading {len(sample)} of {files} files cold, and as records")
    predicted = _rates(sample, few, _ROUNDS_OF_FEW)
    log(f"reading {files} files cold, and as records")
    measured = _rates(paths, everything, _ROUNDS)
    gains = [records.rate / raw.rate for raw, records in (predicted, measured)]
    return {
        "files": files,
        "sampled": len(sample),
        "image_bytes": measured[0].image_bytes,
        "queue_depth": _DEPTH,
        "cached_share": [rate.cached for rate in (*predicted, *measured)],
        "raw_rate_predicted": predicted[0].rate,
        "raw_rate": measured[0].rate,
        "records_rate_predicted": predicted[1].rate,
        "records_rate": measured[1].rate,
        "gain_predicted": gains[0],
        "gain": gains[1],
        "error": gains[0] / gains[1] - 1,
    }


def _rates(paths: list[Path], dataset: Path, rounds: int) -> tuple[ReadRate, ReadRate]:
    """Files and records in turns, each cold each time; the middle one of either."""
    os.sync()  # what is not written yet is not dropped from memory
    runs = [(measure_raw_files(paths, workers=_DEPTH), measure_records(dataset, workers=_DEPTH)) for _ in range(rounds)]
    raw, records = (sorted(each, key=lambda run: run.rate)[rounds // 2] for each in zip(*runs, strict=True))
    return raw, records


def make_files(folder: Path, images: Path, files: int, log: Callable[[str], None]) -> Path:
    """Random crops of the images, each a PNG of its own, in some folders."""
    if (folder / "whole").exists():
        return folder
    log(f"cutting {files} small images")
    originals = [np.asarray(Image.open(path).convert("RGB")) for path in _pictures(images)[:24]]
    rng = np.random.default_rng(0)
    for number in range(files):
        original = originals[number % len(originals)]
        top, left = (int(rng.integers(0, length - EDGE + 1)) for length in original.shape[:2])
        path = folder / f"class-{number % _FOLDERS:02d}" / f"{number:06d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(original[top : top + EDGE, left : left + EDGE]).save(path, compress_level=1)
    (folder / "whole").touch()
    return folder


def _pictures(images: Path) -> list[Path]:
    suffixes = {".png", ".jpg", ".jpeg", ".webp"}
    found = sorted(path for path in images.rglob("*") if path.suffix.lower() in suffixes)
    if not found:
        raise ValueError(f"{images} holds no images to cut small ones from")
    return found


def _build(dest: Path, root: Path, paths: list[Path], log: Callable[[str], None]) -> Path:
    if not (dest / "dataset.json").exists():
        log(f"building {dest.name}")
        samples = ({"__key__": str(path.relative_to(root)), "image": path.read_bytes()} for path in paths)
        headrace.build(samples, dest, format="keep", verify=False)
    return dest
