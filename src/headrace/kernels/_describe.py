# SPDX-License-Identifier: Apache-2.0
"""What the host knows about a batch before anything is copied: validated headers, the needed tiles, ranks.

The core validates headers and indices. Only the contents of tiles are left for the device to check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.kernels.tables import Ints

Region: TypeAlias = tuple[int, int, int, int]

_FULL_IMAGE = (0, 0, -(2**63), 0)  # how the core marks that there is no region
_LIMIT = 2**62


class TileSource(Protocol):
    """Where the images of a batch are. Heads are in memory; tiles are fetched when their places are known."""

    @property
    def heads(self) -> Sequence[Any]:
        """The beginning of each file: at least everything before its first tile."""

    @property
    def sizes(self) -> Ints:
        """Sizes of the files in bytes."""

    def fetch(self, tiles: Ints, payload: npt.NDArray[np.uint8]) -> None:
        """Copy the tiles of a table to their places, verify their checksums, and fill in their kinds.

        Raises:
            HeadraceError: An image is damaged or cannot be read; its position is the error's `index`.

        """


class InMemory:
    """Complete files in memory."""

    def __init__(self, datas: Sequence[Any]) -> None:
        self.heads = datas
        self.sizes = np.array([memoryview(data).nbytes for data in datas], np.int64)

    def fetch(self, tiles: Ints, payload: npt.NDArray[np.uint8]) -> None:
        """Copy the tiles."""
        no_file = np.full(len(self.sizes), -1, np.int64)
        _core.fetch_tiles(self.heads, self.sizes, no_file, no_file, tiles, payload, 1)


@dataclass(frozen=True)
class Description:
    """The tables of a batch. Columns that depend on the output, on scratch or on the tiles' bytes are still 0."""

    tiles: Ints  # [TileField, tiles]
    images: Ints  # [ImageField, images]
    ranks: npt.NDArray[np.int32]
    payload_bytes: int


def describe(source: TileSource, regions: Sequence[Region | None] | Ints | None, max_pixels: int) -> Description:
    """Validate headers and regions, list the tiles that are needed, and place each in the payload."""
    count = len(source.heads)
    if regions is not None and len(regions) != count:
        raise ValueError(f"regions must have one entry, or None, per image; got {len(regions)} for {count} images")
    limit = min(max(max_pixels, 0), _LIMIT)
    return Description(*_core.describe_tiles(source.heads, source.sizes, _as_table(regions, count), limit))


def source_of(datas: Sequence[Any] | TileSource) -> TileSource:
    """Return what was passed as a source of tiles."""
    return cast("TileSource", datas) if hasattr(datas, "fetch") else InMemory(datas)


def _as_table(regions: Sequence[Region | None] | Ints | None, count: int) -> Ints:
    if isinstance(regions, np.ndarray):
        return np.ascontiguousarray(regions, np.int64)
    if regions is None:
        return np.tile(np.array(_FULL_IMAGE, np.int64), (count, 1))
    # Clamped numbers are outside of every image, like the numbers themselves.
    rows = [
        _FULL_IMAGE if each is None else [min(max(int(side), -_LIMIT), _LIMIT) for side in each] for each in regions
    ]
    return np.array(rows, np.int64).reshape(count, 4)
