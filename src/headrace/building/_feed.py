# SPDX-License-Identifier: Apache-2.0
"""Divide a source's samples into units and chunks, skip finished shards, and pass the rest to the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.building._destination import Destination
from headrace.building._options import MAX_SHARD_SAMPLES, SHARD_SAMPLES
from headrace.building._parts import Part
from headrace.building._pipeline import EncodePipeline, Unit
from headrace.building._report import ProgressMeter
from headrace.errors import BadSource, BuildError, HeadraceError
from headrace.sources import Item, Source


def feed(
    source: Source, dest: Destination, pipeline: EncodePipeline, meter: ProgressMeter, shard_bytes: int
) -> tuple[int, int]:
    """Encode all units of the source that are not finished; return the number of shards, and of those kept."""
    limit = shard_samples(source)
    unit: Unit | None = None
    kept, number = 0, dest.first_shard
    waiting: list[Item] = []  # of a unit whose shard may be reused
    for item in _listed(source):
        if unit is None:
            unit, part = Unit(number), dest.reusable(number)
        unit.count(item.key, item.n_bytes, f"{item.stamp} {item.locator!r}")
        if part is None:
            pipeline.add(unit, item, _load(source, item) if source.sequential else None)
        elif not source.sequential:
            waiting.append(item)
        if unit.items >= limit or unit.source_bytes >= shard_bytes:
            kept += _end(unit, part, waiting, pipeline, meter, dest)
            number, unit, waiting = number + 1, None, []
    if unit is not None:
        kept += _end(unit, part, waiting, pipeline, meter, dest)
        number += 1
    return number - dest.first_shard, kept


def _listed(source: Source) -> Iterator[Item]:
    """List a source; any exception becomes a BadSource that names the last sample."""
    last = ""
    try:
        for item in source.items():
            yield item
            last = item.key
    except (HeadraceError, MemoryError):
        raise
    except Exception as error:
        after = f" after sample {last!r}" if last else ""
        raise BadSource(f"the source cannot be listed{after}: {type(error).__name__}: {error}") from error


def _load(source: Source, item: Item) -> Mapping[str, Any] | Exception:
    """Load a sample of an iterable; an error is returned for the worker to report or skip."""
    try:
        return source.load(item)
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:  # noqa: BLE001  # reported by the worker
        return error


def _end(
    unit: Unit,
    part: Part | None,
    waiting: list[Item],
    pipeline: EncodePipeline,
    meter: ProgressMeter,
    dest: Destination,
) -> bool:
    """End a unit; return whether its shard from an earlier run is kept."""
    if part is not None and (part.digest != unit.digest or part.items != unit.items):
        raise _changed(dest, f"the {unit.items} samples of shard {unit.number} have other keys or sizes")
    if part is not None and part.stamps == unit.stamps:
        meter.count(unit.items, unit.source_bytes, part.shard.n_bytes, kept=True)
        return True
    if part is not None and not waiting:
        raise _changed(dest, f"samples of shard {unit.number} have other pixels")
    for item in waiting:  # files have changed or were copied: the shard is built again
        pipeline.add(unit, item)
    pipeline.end_unit()
    return False


def _changed(dest: Destination, how: str) -> BuildError:
    return BuildError(
        f"the source has changed since the build of {dest.path} started: {how}; restore the source, or use "
        "--no-resume (resume=False) to start over"
    )


def shard_samples(source: Source) -> int:
    return SHARD_SAMPLES if source.sequential else MAX_SHARD_SAMPLES
