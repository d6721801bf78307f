# SPDX-License-Identifier: Apache-2.0
"""From a source's listing to the pipeline: samples are cut into units, and those of finished shards are passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.building._options import MAX_SHARD_SAMPLES, SHARD_SAMPLES
from headrace.building._parts import Part
from headrace.building._pipeline import Pipeline, Unit
from headrace.building._progress import Meter
from headrace.building._site import Site
from headrace.errors import BadSource, BuildError, HeadraceError
from headrace.sources import Item, Source

# A chunk is what a worker takes at a time: enough to make messages cheap, little enough to share out evenly.
CHUNK_BYTES = 1 << 20
CHUNK_SAMPLES = 128


def feed(source: Source, site: Site, pipeline: Pipeline, meter: Meter, shard_bytes: int) -> tuple[int, int]:
    """Cut the source into units and have those encoded that are not finished; return how many there are, and were."""
    limit = shard_samples(source)
    unit: Unit | None = None
    kept = number = 0
    batch = _Batch(pipeline)
    waiting: list[Item] = []  # of a unit whose shard may be reused
    for item in _listed(source):
        if unit is None:
            unit, part = Unit(number), site.reusable(number)
        unit.count(item.key, item.n_bytes, f"{item.stamp} {item.locator!r}")
        if part is None:
            batch.add(unit, item, _load(source, item) if source.sequential else None)
        elif not source.sequential:
            waiting.append(item)
        if unit.items >= limit or unit.source_bytes >= shard_bytes:
            kept += _end(unit, part, waiting, batch, pipeline, meter, site)
            number, unit, waiting = number + 1, None, []
    if unit is not None:
        kept += _end(unit, part, waiting, batch, pipeline, meter, site)
        number += 1
    return number, kept


def _listed(source: Source) -> Iterator[Item]:
    """List a source; whatever a listing raises becomes an error that says how far it came."""
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
    """Load a sample of an iterable; what is wrong with it is for the worker to report or skip."""
    try:
        return source.load(item)
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:  # noqa: BLE001  # reported by the worker
        return error


def _end(
    unit: Unit, part: Part | None, waiting: list[Item], batch: _Batch, pipeline: Pipeline, meter: Meter, site: Site
) -> bool:
    if part is not None and (part.digest != unit.digest or part.items != unit.items):
        raise BuildError(
            f"the source has changed since {site.dest} was begun: the {unit.items} samples of shard {unit.number} "
            f"have other keys or sizes; restore the source, or use --no-resume (resume=False) to start over"
        )
    if part is not None and part.stamps == unit.stamps:
        meter.keep(unit.items, unit.source_bytes, part.shard.n_bytes)
        return True
    if part is not None and not waiting:
        raise BuildError(
            f"the source has changed since {site.dest} was begun: samples of shard {unit.number} have other pixels; "
            f"restore the source, or use --no-resume (resume=False) to start over"
        )
    for item in waiting:  # files were changed, or copied: the shard is made again
        batch.add(unit, item, None)
    batch.flush()
    pipeline.end_unit()
    return False


class _Batch:
    """Items on their way to becoming a chunk."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._clear()

    def _clear(self) -> None:
        self._unit: Unit | None = None
        self._items: list[Item] = []
        self._samples: list[tuple[str, Mapping[str, Any] | Exception]] = []
        self._source_bytes = self._size = 0

    def add(self, unit: Unit, item: Item, sample: Mapping[str, Any] | Exception | None) -> None:
        self._unit = unit
        if sample is None:
            self._items.append(item)
            self._size += item.n_bytes
        else:
            self._samples.append((item.key, sample))
            self._size += sample_bytes(sample)
        self._source_bytes += item.n_bytes
        if self._size >= CHUNK_BYTES or len(self._items) + len(self._samples) >= CHUNK_SAMPLES:
            self.flush()

    def flush(self) -> None:
        if self._unit is not None:
            self._pipeline.put(self._unit, self._source_bytes, items=self._items, samples=self._samples)
        self._clear()


def sample_bytes(sample: Mapping[str, Any] | Exception) -> int:
    """Estimate the memory of a loaded sample's images."""
    if isinstance(sample, Exception):
        return 0
    return sum(getattr(value, "nbytes", 0) or len(getattr(value, "data", b"")) for value in sample.values())


def shard_samples(source: Source) -> int:
    return SHARD_SAMPLES if source.sequential else MAX_SHARD_SAMPLES
