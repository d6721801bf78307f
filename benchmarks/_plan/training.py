# SPDX-License-Identifier: Apache-2.0
"""The part `training`: a small network trained from the original files, from one format and from a mix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from benchmarks._plan.stores import Stores
from headrace import formats
from headrace.planning import Calibration, Plan, plan
from headrace.planning._machine import Machine
from headrace.sources import Encoded, Source

SEED = 1
EPOCHS = 2
BATCH_SIZE = 32


def run(stores: Stores, calibration: Calibration, log: Callable[[str], None]) -> dict[str, Any]:
    """The losses of every way to the same pixels."""
    from examples.small_cnn import TRANSFORM, train  # noqa: PLC0415 - needs PyTorch

    mixed = some_mix(calibration)
    single = next(name for name in calibration.formats if name != calibration.source_format)
    datasets = {
        f"{calibration.source_format}, as it is": stores.single(calibration.source_format),
        single: stores.single(single),
        "+".join(each.format for each in mixed.shares): stores.mixed(mixed),
    }
    classes = len(stores.source.classes or [])
    rows = np.random.default_rng(SEED).permutation(stores.images)
    log("training from the original files")
    losses = {"the original files": train(from_files(stores.source, TRANSFORM, rows), classes)}
    for name, path in datasets.items():
        log(f"training from {name}")
        losses[name] = train(_from_dataset(path, TRANSFORM, rows), classes)
    first = losses["the original files"]
    return {
        "source_format": calibration.source_format,
        "images": stores.images,
        "steps": len(first),
        "shares": {each.format: each.share for each in mixed.shares},
        "first_loss": first[0],
        "last_loss": first[-1],
        "same": {name: each == first for name, each in losses.items()},
    }


def some_mix(calibration: Calibration) -> Plan:
    """A plan of at least two formats, on whatever machine that is."""
    for rate in np.geomspace(1e6, 1e11, 60):
        found = plan(calibration, Machine(storage_rate=float(rate), cores=1))
        if len(found.shares) > 1:
            return found
    raise ValueError("no machine was found for which a mix is best")


def from_files(source: Source, transform: Sequence[Any], rows: Any) -> Iterator[dict[str, Any]]:
    """Batches as one would make them by hand: read the file, decode all of it, transform it; in the given order."""
    import torch  # noqa: PLC0415

    compiled = headrace.transforms.compile(list(transform), color="RGB")
    items = list(source.items())
    for epoch in range(EPOCHS):
        for start in range(0, len(rows), BATCH_SIZE):
            images, labels = [], []
            for row in rows[start : start + BATCH_SIZE]:
                sample = source.load(items[row])
                image = sample["image"]
                assert isinstance(image, Encoded)
                pixels = formats.decode(image.data, color="RGB")
                images.append(compiled.image.apply(pixels, seed=SEED, epoch=epoch, sample=int(row)))
                labels.append(sample["label"])
            yield {"image": torch.from_numpy(np.stack(images)), "label": torch.tensor(labels)}


def _from_dataset(path: Path, transform: Sequence[Any], rows: Any) -> Iterator[dict[str, Any]]:
    options: dict[str, Any] = {"transform": list(transform), "seed": SEED, "batch_size": BATCH_SIZE}
    with headrace.Loader(path, indices=rows, **options) as loader:
        for _ in range(EPOCHS):
            yield from loader
