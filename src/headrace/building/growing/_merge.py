# SPDX-License-Identifier: Apache-2.0
"""`headrace.merge`: one new dataset from several, or from one that has dropped samples. Nothing is encoded again.

Each shard of the sources becomes a shard, without samples that are dropped; its stored images are copied and their
checksums compared. Rows of the index get their new shard and offsets, and labels the numbers of the merged classes. A
merge is a build whose units are shards: it resumes as one (spec/dataset.md §7).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.building._assemble import Provenance, assemble, report_finished, writer_name
from headrace.building._destination import Destination, check_destination, refuse_finished
from headrace.building._options import MAX_SHARD_SAMPLES, SHARD_BYTES
from headrace.building._parts import Part
from headrace.building._report import BuildReport, ProgressHook, ProgressMeter, check_progress
from headrace.building.growing._pieces import ShardPiece, changed_rows, copy_images, live_rows
from headrace.building.growing._source import has_labels, join_classes
from headrace.errors import BuildError
from headrace.records import Dataset
from headrace.records.manifest import Manifest, Shard
from headrace.records.schema import arrow_schema
from headrace.records.versions import FIRST


def merge(
    datasets: Sequence[str | PathLike[str]] | str | PathLike[str],
    dest: str | PathLike[str],
    *,
    resume: bool = True,
    force: bool = False,
    progress: ProgressHook | None = None,
) -> BuildReport:
    """Make a dataset of the samples of several datasets, one after the other. Stored images are copied as they are.

    Labels are mapped by the names of the classes; the classes are those of the first dataset, then new ones of the
    others. Dropped samples are not copied, so a merge of one dataset is a copy that takes only the space it needs.
    Samples with equal keys are all kept. A merge that was killed continues when it is called again.

    Args:
        datasets: Datasets with the same fields and alignment, each the newest version or as `photos.hr@v3`.
        dest: Folder of the new dataset.
        resume: Continue an interrupted merge. If False, start over.
        force: Replace a finished dataset. It stays in place until the new one is complete.
        progress: Called with a `Progress` at most every 0.1 s.

    Raises:
        BuildError: The datasets do not match, or the merge cannot continue.

    """
    check_progress(progress)
    start = time.perf_counter()
    paths = [datasets] if isinstance(datasets, str | PathLike) else list(datasets)
    if not paths:
        raise ValueError("at least one dataset must be given; got none")
    parts = [Dataset(path) for path in paths]
    folder = Path(dest)
    for part in parts:
        if part.path.resolve() == folder.resolve():
            raise BuildError(f"{folder} cannot be merged into itself: name another destination")
        _check_same(parts[0], part)
    classes, labels = _merged_classes(parts)
    manifest = parts[0].manifest
    names = [part.path.resolve().name for part in parts]
    options = {**manifest.options, "align": manifest.align, "merged": [part.fingerprint for part in parts]}
    identity = {"merge": options["merged"], "names": names, "writer": writer_name()}
    provenance = Provenance("merge", ", ".join(names), classes, options)
    check_destination(folder, force=force or resume)
    with Destination(folder, identity, manifest.fields, resume=resume, force=force) as place:
        if place.is_finished:
            return _finished_before(place, options)
        units = _units(parts, labels)
        if not units:
            raise BuildError("the datasets have no samples: nothing was merged")
        totals = sum(unit.samples for unit in units), sum(unit.n_bytes for unit in units)
        meter = ProgressMeter(progress, None, totals)
        try:
            kept = sum(_copy(unit, place, number, meter) for number, unit in enumerate(units))
        except KeyboardInterrupt as error:
            error.add_note(f"{folder}: finished shards are kept; merge again to continue")
            raise
        finally:
            meter.close()
        run = {"seconds": time.perf_counter() - start, "new_samples": meter.samples, "kept_shards": kept}
        return assemble(place, manifest.fields, len(units), provenance, **run)


@dataclass(frozen=True, slots=True)
class _Unit:
    """Shards of the sources that become one shard."""

    pieces: list[ShardPiece]

    @property
    def samples(self) -> int:
        return sum(piece.samples for piece in self.pieces)

    @property
    def n_bytes(self) -> int:
        return sum(piece.shard.n_bytes for piece in self.pieces)

    @property
    def digest(self) -> str:
        names = "".join(f"{piece.dataset.fingerprint} {piece.number}\n" for piece in self.pieces)
        return blake2b(names.encode(), digest_size=16).hexdigest()


def _units(parts: Sequence[Dataset], labels: Sequence[npt.NDArray[np.int64] | None]) -> list[_Unit]:
    """Return the new shards: those of the sources in order, small ones together."""
    units: list[_Unit] = []
    for part, numbers in zip(parts, labels, strict=True):
        for number, first_row in _live_shards(part):
            piece = ShardPiece(part, number, first_row, numbers)
            last = units[-1] if units else None
            if (
                last is not None
                and last.n_bytes + piece.shard.n_bytes <= SHARD_BYTES
                and last.samples + piece.samples <= MAX_SHARD_SAMPLES
            ):
                last.pieces.append(piece)
            else:
                units.append(_Unit([piece]))
    return units


def _check_same(first: Dataset, other: Dataset) -> None:
    """Raise BuildError unless two datasets can be merged."""
    ours, theirs = ({f.name: (f.declared, f.renditions) for f in each.manifest.fields} for each in (first, other))
    if list(ours.items()) != list(theirs.items()):
        wrong = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)] or ["their order"]
        described = [
            f"{name} ({_described(ours.get(name))} in {first.path}, {_described(theirs.get(name))} in {other.path})"
            if name in ours or name in theirs
            else name
            for name in wrong
        ]
        raise BuildError(
            f"datasets that are merged must have the same fields; these differ: {'; '.join(described)}: build one "
            f"of them again with the fields of the other"
        )
    if first.manifest.align != other.manifest.align:
        raise BuildError(
            f"datasets that are merged must have the same alignment; {first.path} has {first.manifest.align}, "
            f"{other.path} has {other.manifest.align}: build one of them again with --align"
        )


def _described(field: tuple[str, int] | None) -> str:
    if field is None:
        return "missing"
    return f"{field[0]} in {field[1]} formats" if field[1] > 1 else field[0]


def _merged_classes(parts: Sequence[Dataset]) -> tuple[tuple[str, ...] | None, list[npt.NDArray[np.int64] | None]]:
    """Return the classes of all datasets, and for each the new numbers of its labels."""
    joined = parts[0].manifest.classes
    labels: list[npt.NDArray[np.int64] | None] = [None]
    for part in parts[1:]:
        joined, numbers = join_classes(
            joined, part.manifest.classes, str(part.path), has_labels=has_labels(part.manifest.fields)
        )
        labels.append(None if numbers is None else np.array(numbers, np.int64))
    return joined, labels


def _live_shards(part: Dataset) -> Iterator[tuple[int, int]]:
    """Yield the number and the first stored row of each shard that has samples."""
    shards = part.manifest.shards
    first_rows = accumulate((shard.samples for shard in shards), initial=0)
    for number, (shard, first_row) in enumerate(zip(shards, first_rows, strict=False)):
        if shard.samples > shard.dropped:
            yield number, first_row


def _copy(unit: _Unit, place: Destination, number: int, meter: ProgressMeter) -> bool:
    """Write one shard; return whether that of an earlier run is kept."""
    done = place.reusable(number)
    if done is not None and done.digest == unit.digest:
        meter.count(unit.samples, unit.n_bytes, done.shard.n_bytes, kept=True)
        return True
    path = place.begin(number)
    sink, end = pa.BufferOutputStream(), 0
    with pa.ipc.new_stream(sink, arrow_schema(unit.pieces[0].dataset.manifest.fields)) as writer:
        for piece in unit.pieces:
            rows = live_rows(piece)
            offsets, end = copy_images(piece, rows, path, end)
            writer.write_table(changed_rows(rows, piece, number, offsets))
            meter.count(piece.samples, piece.shard.n_bytes, piece.shard.n_bytes)
    part = Part(Shard(0, "", 0), unit.digest, "", unit.samples, unit.n_bytes, ())
    place.finish(number, part, end, [bytes(memoryview(sink.getvalue()))])
    return False


def _finished_before(place: Destination, options: Mapping[str, Any]) -> BuildReport:
    """Return the report if the dataset at the destination is this merge, finished earlier; else raise BuildError."""
    if Manifest.load(place.path, FIRST).options.get("merged") != options["merged"]:
        refuse_finished(place.path)
    report = report_finished(place.path)
    place.complete(report.shards)
    return report
