# SPDX-License-Identifier: Apache-2.0
"""Tables of benchmarks/transforms.py."""

from __future__ import annotations

from typing import Any

from benchmarks._transforms.cases import LIBRARIES, PLAIN, RECIPES, SOURCES
from benchmarks.tables import NOTHING, Table

METHOD = """
Each library runs the recipes as its users write them, each run as a process tree of its own, held to as many cores
as it has workers. All CPU time of the tree counts, per image, after a first epoch that warms up. The runs of a round
are interleaved, and the median of the rounds counts. Images come from the page cache. Batches are float32, 3x224x224
(local crops 3x96x96), normalized.

- timm on DataLoader: Pillow decodes, crops and changes colors; RandAugment, RandomErasing and Mixup are timm's own
  code. An image is decoded once for all of its views. glibc keeps freed buffers, which is faster.
- DALI: on the CPU, with its `auto_aug`. It decodes only the crop of a JPEG where one view is made, and all of it for
  several. Its erasing fills with one value; batches are mixed with PyTorch.
- Headrace: all of it in the core, with draws keyed by seed, epoch and sample.

The cost of a single operation is the difference to crop, flip and normalize alone.
"""


def cpu(document: dict[str, Any], source: str, recipe: str, program: str) -> float | None:
    """Return the CPU milliseconds per image of a run; None if there is none."""
    for row in document["rows"]:
        if (row["source"], row["recipe"], row["program"]) == (source, recipe, program):
            return float(row["cpu_ms"])
    return None


def recipe_tables(document: dict[str, Any]) -> list[Table]:
    """Return a table of whole recipes for each source."""
    tables = []
    for source, title in SOURCES.items():
        rows = []
        for recipe in RECIPES:
            found = [cpu(document, source, recipe.name, library.program) for library in LIBRARIES]
            if not recipe.single and any(value is not None for value in found):
                rows.append([recipe.title, *map(_figure, found), *(_times(found[0], other) for other in found[1:])])
        if rows:
            labels = [library.label for library in LIBRARIES]
            columns = ["recipe", *labels, *(f"{label} / Headrace" for label in labels[1:])]
            tables.append(Table(columns, rows, f"CPU ms per image, {title}"))
    return tables


def operation_tables(document: dict[str, Any]) -> list[Table]:
    """Return a table of single operations for each source."""
    tables = []
    for source, title in SOURCES.items():
        rows = []
        base = {library.program: cpu(document, source, PLAIN.name, library.program) for library in LIBRARIES}
        for recipe in (recipe for recipe in RECIPES if recipe.single):
            found = [cpu(document, source, recipe.name, library.program) for library in LIBRARIES]
            if any(value is not None for value in found):
                rows.append([recipe.title, *map(_added, found, base.values())])
        if rows:
            columns = ["operation", *(library.label for library in LIBRARIES)]
            tables.append(Table(columns, rows, f"CPU ms per image that an operation adds, {title}"))
    return tables


def tables(document: dict[str, Any]) -> list[Table]:
    return [*recipe_tables(document), *operation_tables(document)]


def _figure(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _added(value: float | None, plain: float | None) -> str:
    return NOTHING if value is None or plain is None else f"{value - plain:.2f}"


def _times(ours: float | None, other: float | None) -> str:
    return NOTHING if ours is None or other is None else f"{other / ours:.1f}x"
