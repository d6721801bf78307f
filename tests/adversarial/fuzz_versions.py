# SPDX-License-Identifier: Apache-2.0
"""A sound dataset with versions for the fuzzer, and what people do with versions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace

GROWN = "grown.hr"
NEWEST = "versions/000004.json"


def make_grown(sound: Path, path: Path) -> None:
    """Make a dataset whose version 2 adds, version 3 drops and version 4 relabels samples."""
    shutil.copytree(sound, path)
    dataset = headrace.open(sound)
    headrace.build(dataset.select(slice(0, 6)), path.with_name("more.hr"), format="keep", workers=1)
    fields = {field.name: field.declared for field in dataset.manifest.fields}
    samples = headrace.sources.DatasetSource(path.with_name("more.hr"))
    renamed = [{**samples.load(item), "__key__": f"more/{item.key}"} for item in samples.items()]
    headrace.add(path, headrace.sources.IterableSource(renamed, fields=fields), workers=1)
    headrace.drop(path, [1, 9, 25])
    headrace.relabel(path, [0, 5, 26], [7, 8, 9])
    assert len(headrace.open(path)) == 27


def entry_of(manifest: Any, name: str) -> Any:
    """Return the object of a version file that describes an index file or change file."""
    folder, number = name.split("/", maxsplit=1)[0], int(Path(name).stem)
    candidates = manifest["index"] if folder == "index" else [manifest["dropped"], *manifest["relabeled"].values()]
    return next(entry for entry in candidates if entry["file"] == number)


def uses(path: Path) -> Iterator[Callable[[], Any]]:
    """All that people do with versions. What is written goes to other folders, or to the forgery itself."""
    yield lambda: headrace.log(path)
    yield lambda: headrace.open(f"{path}@v1")[0]
    yield lambda: headrace.collect_garbage(path, dry_run=True)
    merged = path.with_name("merged.hr")
    shutil.rmtree(merged, ignore_errors=True)
    yield lambda: headrace.merge([path, f"{path}@v2"], merged)
    yield lambda: headrace.relabel(path, "sample/3", 1)
    yield lambda: headrace.drop(path, "sample/2")
    yield lambda: headrace.records.verify(path, workers=1)
