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

# A chunk is large enough that messages cost little, and small enough that workers get equal shares.
CHUNK_BYTES = 1 << 20
CHUNK_SAMPLES = 128


def feed(
    source: Source, dest: Destination, pipeline: EncodePipeline, meter: ProgressMeter, shard_bytes: int
) -> tuple[int, int]:
    """Encode all units of the source that are not finished; return the number of shards, and of those kept."""
    limit = shard_samples(source)
    unit: Unit | None = None
    kept = number = 0
    buffer = ChunkBuffer(pipeline)
    waiting: list[Item] = []  # of a unit whose shard may be reused
    for item in _listed(source):
        if unit is None:
            unit, part = Unit(number), dest.reusable(number)
        unit.count(item.key, item.n_bytes, f"{item.stamp} {item.locator!r}")
        if part is None:
            buffer.add(unit, item, _load(source, item) if source.sequential else None)
        elif not source.sequential:
            waiting.append(item)
        if unit.items >= limit or unit.source_bytes >= shard_bytes:
            kept += _end(unit, part, waiting, buffer, meter, dest)
            number, unit, waiting = number + 1, None, []
    if unit is not None:
        kept += _end(unit, part, waiting, buffer, meter, dest)
        number += 1
    return number, kept


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
    unit: Unit, part: Part | None, waiting: list[Item], buffer: ChunkBuffer, meter: ProgressMeter, dest: Destination
) -> bool:
    """End a unit; return whether its shard from an earlier run is kept."""
    if part is not None and (part.digest != unit.digest or part.items != unit.items):
        raise _changed(dest, f"the {unit.items} samples of shard {unit.number} have other keys or sizes")
    if part is not None and part.stamps == unit.stamps:
        meter.keep(unit.items, unit.source_bytes, part.shard.n_bytes)
        return True
    if part is not None and not waiting:
        raise _changed(dest, f"samples of shard {unit.number} have other pixels")
    for item in waiting:  # files have changed or were copied: the shard is built again
        buffer.add(unit, item, None)
    buffer.end_unit()
    return False


def _changed(dest: Destination, how: str) -> BuildError:
    return BuildError(
        f"the source has changed since the build of {dest.path} started: {how}; restore the source, or use "
        "--no-resume (resume=False) to start over"
    )


class ChunkBuffer:
    """Collects samples until they fill a chunk, and passes it to the pipeline."""

    def __init__(self, pipeline: EncodePipeline) -> None:
        self._pipeline = pipeline
        self._clear()

    def _clear(self) -> None:
        self._unit: Unit | None = None
        self._items: list[Item] = []
        self._samples: list[tuple[str, Mapping[str, Any] | Exception]] = []
        self._source_bytes = self._size = 0

    def add(self, unit: Unit, item: Item, sample: Mapping[str, Any] | Exception | None) -> None:
        """Add an item that a worker will load, or with `sample` one that is already loaded."""
        self._unit = unit
        if sample is None:
            self._items.append(item)
            self._size += item.n_bytes
        else:
            self._samples.append((item.key, sample))
            self._size += _sample_bytes(sample)
        self._source_bytes += item.n_bytes
        if self._size >= CHUNK_BYTES or len(self._items) + len(self._samples) >= CHUNK_SAMPLES:
            self._flush()

    def end_unit(self) -> None:
        self._flush()
        self._pipeline.end_unit()

    def _flush(self) -> None:
        if self._unit is not None:
            self._pipeline.put(self._unit, self._source_bytes, items=self._items, samples=self._samples)
        self._clear()


def _sample_bytes(sample: Mapping[str, Any] | Exception) -> int:
    """Estimate the memory of a loaded sample's images."""
    if isinstance(sample, Exception):
        return 0
    return sum(getattr(value, "nbytes", 0) or len(getattr(value, "data", b"")) for value in sample.values())


def shard_samples(source: Source) -> int:
    return SHARD_SAMPLES if source.sequential else MAX_SHARD_SAMPLES
