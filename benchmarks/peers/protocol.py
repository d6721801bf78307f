# SPDX-License-Identifier: Apache-2.0
"""What all peers' programs share: arguments, measurement, and the line of JSON that they print.

A program passes a generator that creates its loader from a `Job` and yields the epochs, each an iterable of batches.
What it does before the first and after the last is timed too; imports are not. Needs nothing but NumPy: every peer has
its own environment.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

CROPS = ("random-resized", "random", "center")

_TICKS = os.sysconf("SC_CLK_TCK")
_STRIDE = 16  # one pixel in 256 is checked: enough to see that the images are right, at no noticeable cost

Batches = Iterable[tuple[Any, Any]]
Load = Callable[["Job"], Iterable[Batches]]


@dataclass(frozen=True)
class Job:
    """What a loader has to do: float32 CHW, normalized with ImageNet's mean and std, shuffled again each epoch."""

    data: Path  # the images, as this peer stores them
    crop: str  # one of CROPS
    size: int  # of the crop, after it is resized
    batch_size: int
    workers: int
    epochs: int
    seed: int
    variant: str  # which of the peer's ways to do it; "" is its default


def files_of(folder: Path) -> tuple[list[str], list[int]]:
    """Return the images in class folders and their labels, numbered as `ImageFolder` does."""
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    found = [(str(path), label) for label, name in enumerate(classes) for path in sorted((folder / name).iterdir())]
    return [path for path, _ in found], [label for _, label in found]


def main(
    load: Load,
    *,
    libraries: Iterable[str],
    prepare: Callable[[Path, Path, str, int], None] | None = None,
) -> None:
    """Run the command line: `run …` measures a loader, `prepare FOLDER DEST` stores the images; both print JSON."""
    parser = argparse.ArgumentParser(description="A loader, measured; benchmarks/loaders.py starts it.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("data", type=Path)
    run.add_argument("--crop", choices=CROPS, required=True)
    for name in ("size", "batch-size", "workers", "epochs", "seed"):
        run.add_argument(f"--{name}", type=int, required=True)
    run.add_argument("--variant", default="")
    if prepare is not None:
        preparing = verbs.add_parser("prepare")
        preparing.add_argument("source", type=Path)
        preparing.add_argument("dest", type=Path)
        preparing.add_argument("--variant", default="")
        preparing.add_argument("--workers", type=int, default=1)
    arguments = vars(parser.parse_args())
    verb = arguments.pop("verb")
    if verb == "prepare" and prepare is not None:
        watch = _Watch()
        prepare(arguments["source"], arguments["dest"], arguments["variant"], arguments["workers"])
        found = {"seconds": watch.seconds(), "cpu_seconds": watch.cpu_seconds(), "peak_mb": _peak_mb()}
    else:
        found = measure(load, Job(**arguments))
    print(json.dumps(found | {"libraries": _versions(libraries)}), flush=True)


def measure(load: Load, job: Job) -> dict[str, Any]:
    """Create the loader, take every batch of every epoch, close it."""
    watch, look = _Watch(), _Look()
    epochs = list(_take(load, job, watch, look))
    return {
        "images": look.images,
        "seconds": watch.seconds(),
        "cpu_seconds": watch.cpu_seconds(),
        "first_batch_seconds": epochs[0]["first_batch_seconds"],
        "epochs": epochs,
    } | look.report()


def _take(load: Load, job: Job, watch: _Watch, look: _Look) -> Iterator[dict[str, Any]]:
    """Yield the totals at the end of each epoch. Keep no reference to the loader: some close when it is dropped."""
    for epoch in load(job):
        first_batch = None
        for images, labels in epoch:
            first_batch = first_batch or watch.seconds()
            look.at(images, labels)
        yield {
            "images": look.images,
            "seconds": watch.seconds(),
            "cpu_seconds": watch.cpu_seconds(),
            "first_batch_seconds": first_batch,
        }


class _Watch:
    """Wall-clock and CPU time of this process and its descendants, since it was created."""

    def __init__(self) -> None:
        self._cpu = _cpu_seconds()
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def cpu_seconds(self) -> float:
        return _cpu_seconds() - self._cpu


class _Look:
    """A check of the batches, so that every peer does the same work."""

    def __init__(self) -> None:
        self.images = 0
        self._sum = self._squares = self._seen = 0.0
        self._labels = 0
        self._shapes: set[tuple[int, ...]] = set()
        self._dtypes: set[str] = set()

    def at(self, images: Any, labels: Any) -> None:
        pixels = np.asarray(images)
        self.images += len(pixels)
        self._shapes.add(pixels.shape[1:])
        self._dtypes.add(str(pixels.dtype))
        some = pixels[:, :, ::_STRIDE, ::_STRIDE].astype(np.float64)
        self._sum += float(some.sum())
        self._squares += float((some * some).sum())
        self._seen += some.size
        self._labels += int(np.asarray(labels).sum())

    def report(self) -> dict[str, Any]:
        mean = self._sum / self._seen
        return {
            "mean": mean,
            "deviation": (self._squares / self._seen - mean * mean) ** 0.5,
            "mean_label": self._labels / self.images,
            "shapes": sorted(self._shapes),
            "dtypes": sorted(self._dtypes),
        }


def _cpu_seconds() -> float:
    """User and system time of this process, its ended children, and its running descendants."""
    ended = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in ended) + sum(_cpu_below(os.getpid()))


def _cpu_below(pid: int) -> Iterator[float]:
    for child in _children(pid):
        try:
            # After the name, which may hold anything: state, parent, … utime, stime, cutime, cstime as 12th to 15th.
            fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # it has just exited
        yield sum(int(ticks) for ticks in fields[11:15]) / _TICKS
        yield from _cpu_below(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text(encoding="utf-8").split())
        except OSError:
            continue
    return found


def _peak_mb() -> float:
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


def _versions(libraries: Iterable[str]) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in libraries}
