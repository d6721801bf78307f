# SPDX-License-Identifier: Apache-2.0
"""Samples of a source: which items stand for all of them, and a source that has only these.

The cost of an image depends on its size. So samples have the sizes of all images, in proportion.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from headrace import formats
from headrace.codec import inspect
from headrace.errors import BadSource, HeadraceError
from headrace.formats import IMAGE_SUFFIXES
from headrace.records import hash64
from headrace.sources import Encoded, Item, Source, open_source

_MAX_LISTED = 20_000
"""Of a longer source, the items whose keys have the smallest hashes are kept."""
_SEED = "calibration:"


@dataclass(frozen=True, slots=True)
class SourceSample:
    """Some samples of a source that can all be decoded."""

    source: Source  # a source with these samples only
    images: int  # number of samples in the original source
    sampled: int
    own_format: str | None  # the format of all files; None if they differ, or are arrays
    skipped: tuple[str, ...] = ()  # keys of samples that could not be decoded, each with the reason


def take_sample(source: Any, n: int) -> SourceSample:
    """Choose `n` samples of anything that `headrace.build` accepts, always the same ones; skip those that are damaged.

    Of a source that can be read only once, the first `n` are taken.
    """
    is_open = hasattr(source, "items") and hasattr(source, "load")
    opened: Source = source if is_open else open_source(Path(source) if isinstance(source, PathLike) else source)
    if opened.sequential:
        return _decodable(opened, islice(opened.items(), n))
    suffixes: Counter[str] = Counter()

    def listed() -> Iterator[Item]:
        for item in opened.items():
            suffixes[_suffix(item.key)] += 1
            yield item

    drawn = heapq.nsmallest(_MAX_LISTED, listed(), key=lambda item: (hash64(_SEED + item.key), item.key))
    found = _decodable(opened, [drawn[k] for k in spread_by_size([item.n_bytes for item in drawn], n)])
    # One file of another kind may not be in the sample, but its name shows that not all files have one format.
    own_format = found.own_format if len(suffixes) == 1 else None
    return replace(found, images=suffixes.total(), own_format=own_format)


def spread_by_size(sizes: Sequence[int] | np.ndarray[Any, Any], n: int) -> list[int]:
    """Return the positions of `n` sizes that are evenly spread over the sorted sizes, smallest first."""
    by_size = np.argsort(np.asarray(sizes), kind="stable")
    n = min(n, len(by_size))
    return [int(by_size[(2 * k + 1) * len(by_size) // (2 * n)]) for k in range(n)]


def some_of(items: Sequence[Item], n: int) -> Sequence[Item]:
    """Return at most `n` items, chosen at random, in their order."""
    if len(items) <= n:
        return items
    chosen = np.random.default_rng(0).choice(len(items), n, replace=False)
    return [items[number] for number in sorted(chosen.tolist())]


def list_items(source: Source, seconds: float) -> tuple[list[Item], bool]:
    """List a source for about this many seconds; return the items, and whether these are all."""
    end = time.perf_counter() + seconds
    found: list[Item] = []
    for item in source.items():
        if item.problem is None:
            found.append(item)
        if len(found) % 1024 == 0 and time.perf_counter() > end:
            return found, False
    return found, True


def image_fields(source: Source) -> list[str]:
    """Return the names of a source's image fields, at least one."""
    images = [name for name, kind in source.fields.items() if kind == "image"]
    if not images:
        raise BadSource(f"a source must have an image field; got {', '.join(source.fields) or 'no fields'}")
    return images


def _decodable(source: Source, items: Iterable[Item]) -> SourceSample:
    """Return the items whose images can be decoded, as a source."""
    images = image_fields(source)
    kept: list[Item] = []
    loaded: dict[str, dict[str, object]] = {}
    skipped: list[str] = []
    found_formats: set[str | None] = set()
    for item in items:
        try:
            sample = source.load(item)
            by_field = {
                name: _decoded_format(sample[name], kind)
                for name, kind in source.fields.items()
                if kind in ("image", "mask")
            }
        except (HeadraceError, OSError, ValueError) as error:
            skipped.append(f"{item.key}: {error}")
            continue
        found_formats.update(by_field[name] for name in images)
        kept.append(item)
        if source.sequential:  # it cannot be loaded again
            loaded[item.key] = sample
    if not kept:
        damage = f": none of {len(skipped)} can be decoded, such as {skipped[0]}" if skipped else ""
        raise BadSource(f"the source has no samples to measure{damage}")
    own_format = found_formats.pop() if len(found_formats) == 1 else None
    return SourceSample(_SourceSubset(source, kept, loaded), len(kept), len(kept), own_format, tuple(skipped))


def _decoded_format(value: object, kind: str) -> str | None:
    """Decode an encoded image and return its format; None if it is an array."""
    if not isinstance(value, Encoded):
        return None
    formats.decode(value.data, color="index" if kind == "mask" else "keep")
    return f"hri:{inspect(value.data).mode}" if value.format == "hri" else value.format


def _suffix(key: str) -> str:
    """Return the suffix of a key that is the name of an image file, else an empty string."""
    suffix = PurePosixPath(key).suffix.lower()
    return ".jpg" if suffix == ".jpeg" else suffix if suffix in IMAGE_SUFFIXES else ""


class _SourceSubset:
    """A source with some items of another one."""

    sequential = False

    def __init__(self, source: Source, items: Sequence[Item], loaded: Mapping[str, dict[str, object]]) -> None:
        self._source, self._items, self._loaded = source, items, loaded
        self.kind, self.fields, self.classes = source.kind, source.fields, source.classes

    def items(self) -> Iterator[Item]:
        return iter(self._items)

    def load(self, item: Item) -> dict[str, object]:
        return self._loaded[item.key] if item.key in self._loaded else self._source.load(item)
