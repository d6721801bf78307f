# SPDX-License-Identifier: Apache-2.0
"""Whether a finished dataset is what this very build would make: then there is nothing left to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.building._assemble import Provenance, writer_name
from headrace.errors import HeadraceError
from headrace.records import Dataset
from headrace.records.manifest import MANIFEST, Manifest
from headrace.records.schema import Field
from headrace.sources import Source


def difference(folder: Path, source: Source, fields: tuple[Field, ...], provenance: Provenance) -> str:
    """Say in which way a finished dataset differs from what would be built; nothing if it does not.

    Keys, the total of sizes and modification times are compared. A file that was changed and kept its size and an old
    modification time is not noticed.
    """
    try:
        dataset = Dataset(folder)
    except (HeadraceError, OSError) as error:
        return f" that cannot be opened ({error})"
    manifest = dataset.manifest
    told = _difference_of_options(manifest, fields, provenance)
    if told:
        return f" built with other options: {told}"
    if source.sequential:
        return ", and whether an iterable still yields the same samples cannot be told"
    return "" if _same_samples(folder, dataset, source) else ", and its source has changed since"


def _difference_of_options(manifest: Manifest, fields: tuple[Field, ...], provenance: Provenance) -> str:
    before = {**manifest.options, "fields": manifest.fields, "classes": manifest.classes, "writer": manifest.writer}
    before |= {"source": (manifest.source.get("kind"), manifest.source.get("name"))}
    now: Mapping[str, Any] = {
        **provenance.options,
        "fields": fields,
        "classes": provenance.classes,
        "writer": writer_name(),
        "source": (provenance.kind, provenance.name),
    }
    # Without skipped samples the dataset is the same, whatever would have happened to them.
    same = {"on_error"} if not manifest.skipped_count else set()
    return ", ".join(
        sorted(name for name in {**before, **now} if name not in same and before.get(name) != now.get(name))
    )


def _same_samples(folder: Path, dataset: Dataset, source: Source) -> bool:
    finished = (folder / MANIFEST).stat().st_mtime_ns
    row = samples = n_bytes = 0
    for item in source.items():
        samples, n_bytes = samples + 1, n_bytes + item.n_bytes
        if source.kind != "dataset" and item.stamp > finished:
            return False
        row += row < len(dataset) and dataset.key(row) == item.key
    manifest = dataset.manifest
    counted = (manifest.source.get("samples"), manifest.source.get("bytes"))
    return row == len(dataset) and samples - row == manifest.skipped_count and (samples, n_bytes) == counted
