# SPDX-License-Identifier: Apache-2.0
"""Two measurements of Headrace alone: the cost of a region, and the speed-up by a second thread."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import headrace
from benchmarks import machine
from benchmarks._codec.contract import HEADRACE
from benchmarks._codec.race import NotLossless
from benchmarks._codec.timing import Contender, Effort, interleave

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks._codec.images import Pixels

REGION_SIDE = 256
REGIONS_PER_IMAGE = 16
_SEED = 0

Region = tuple[int, int, int, int]


def regions(images: Iterable[tuple[str, Pixels]], effort: Effort) -> list[dict[str, Any]]:
    """Measure random 256x256 regions as a share of the full decode, for each image that is large enough."""
    chance = np.random.default_rng(_SEED)
    rows: list[dict[str, Any]] = []
    for name, pixels in images:
        height, width = pixels.shape[:2]
        if min(height, width) < REGION_SIDE:
            continue
        tops = chance.integers(0, height - REGION_SIDE, REGIONS_PER_IMAGE, endpoint=True).tolist()
        lefts = chance.integers(0, width - REGION_SIDE, REGIONS_PER_IMAGE, endpoint=True).tolist()
        places = [(top, left, REGION_SIDE, REGION_SIDE) for top, left in zip(tops, lefts, strict=True)]
        for mode in HEADRACE:
            file = headrace.encode(pixels, mode=mode)
            whole = Contender(partial(headrace.decode, file, out=np.empty_like(pixels)), effort)
            parts = Contender(_decode_each(name, pixels, file, places), effort)
            interleave([whole, parts])
            rows.append(
                {
                    "image": name,
                    "mode": mode,
                    "height": height,
                    "width": width,
                    "region_seconds": parts.best / len(places),
                    "full_seconds": whole.best,
                    "share": parts.best / len(places) / whole.best,
                }
            )
    return rows


def _decode_each(name: str, pixels: Pixels, file: bytes, places: list[Region]) -> Callable[[], None]:
    """Return a call that decodes all regions in order, so that none finds its own bytes still in the cache."""
    out = np.empty((REGION_SIDE, REGION_SIDE, *pixels.shape[2:]), pixels.dtype)
    for place in places:
        top, left, height, width = place
        if not np.array_equal(
            headrace.decode(file, region=place, out=out), pixels[top : top + height, left : left + width]
        ):
            raise NotLossless(f"region {place} of {name} must have the pixels of the image; it has others")

    def decode_each() -> None:
        for place in places:
            headrace.decode(file, region=place, out=out)

    return decode_each


def threads(images: Iterable[tuple[str, Pixels]], effort: Effort, cores: list[int]) -> list[dict[str, Any]]:
    """Measure the wall-clock time of a full decode with one thread and with two, on all `cores`."""
    pinned = machine.usable_cores()
    machine.pin(cores)
    rows: list[dict[str, Any]] = []
    try:
        for name, pixels in images:
            for mode in HEADRACE:
                file = headrace.encode(pixels, mode=mode)
                out = np.empty_like(pixels)
                one, two = (
                    Contender(partial(headrace.decode, file, out=out, threads=n), effort, time.perf_counter)
                    for n in (1, 2)
                )
                interleave([one, two])
                rows.append(
                    {
                        "image": name,
                        "mode": mode,
                        "one_seconds": one.best,
                        "two_seconds": two.best,
                        "speedup": one.best / two.best,
                    }
                )
    finally:
        machine.pin(pinned)
    return rows
