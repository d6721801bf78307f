# SPDX-License-Identifier: Apache-2.0
"""What the host knows of a batch before anything is copied: validated headers, the tiles that regions touch, ranks.

Headers and indices pass the core's own validator. All that is left for a device to doubt is what is inside of tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from headrace import _core

Ints: TypeAlias = npt.NDArray[np.int64]
Region: TypeAlias = tuple[int, int, int, int]

_WHOLE = (0, 0, -(2**63), 0)  # the core's name for the whole image
_MOST = 2**62


class TileSource(Protocol):
    """Where the images of a batch are. Their heads are at hand; their tiles are fetched once it is known where to."""

    @property
    def heads(self) -> Sequence[Any]:
        """Of each file the beginning, at least all that comes before its first tile."""

    @property
    def sizes(self) -> Ints:
        """Of the whole files, in bytes."""

    def fetch(self, tiles: Ints, payload: npt.NDArray[np.uint8]) -> None:
        """Bring the tiles of a table to their places, check their sums and fill in their kinds.

        Raises:
            HeadraceError: An image is damaged or cannot be read; its number is the error's `index`.

        """


class InMemory:
    """Whole files that are in memory."""

    def __init__(self, datas: Sequence[Any]) -> None:
        self.heads = datas
        self.sizes = np.array([memoryview(data).nbytes for data in datas], np.int64)

    def fetch(self, tiles: Ints, payload: npt.NDArray[np.uint8]) -> None:
        """Copy the tiles."""
        nowhere = np.full(len(self.sizes), -1, np.int64)
        _core.fetch_tiles(self.heads, self.sizes, nowhere, nowhere, tiles, payload, 1)


@dataclass(frozen=True)
class Description:
    """A batch as the host sees it. Columns of the tables that hang on the output or on scratch are still 0.

    So are the kinds of the tiles: they are the first bytes of those, which are not read before all have their places.
    """

    tiles: Ints  # [Tile, tiles]
    images: Ints  # [Image, images]
    ranks: npt.NDArray[np.int32]
    payload_bytes: int


def describe(
    datas: Sequence[Any] | TileSource, regions: Sequence[Region | None] | Ints | None, max_pixels: int
) -> Description:
    """Validate headers and regions, list the tiles that are needed and give each its place in the payload."""
    source = source_of(datas)
    count = len(source.heads)
    if regions is not None and len(regions) != count:
        raise ValueError(f"there are {count} images but {len(regions)} regions; give one, or None, for each")
    limit = min(max(max_pixels, 0), _MOST)
    return Description(*_core.describe_tiles(source.heads, source.sizes, _as_table(regions, count), limit))


def copy_tiles(datas: Sequence[Any], tiles: Ints, payload: npt.NDArray[np.uint8]) -> None:
    """Check the sums of the tiles and copy them to their places. What lies between tiles is left as it is."""
    InMemory(datas).fetch(tiles, payload)


def source_of(datas: Sequence[Any] | TileSource) -> TileSource:
    """What was given, seen as a source of tiles."""
    return cast("TileSource", datas) if hasattr(datas, "fetch") else InMemory(datas)


def _as_table(regions: Sequence[Region | None] | Ints | None, count: int) -> Ints:
    if isinstance(regions, np.ndarray):
        return np.ascontiguousarray(regions, np.int64)
    if regions is None:
        return np.tile(np.array(_WHOLE, np.int64), (count, 1))
    # A number beyond the core's is as far outside of the image as the largest that it has.
    listed = [_WHOLE if each is None else [min(max(int(side), -_MOST), _MOST) for side in each] for each in regions]
    return np.array(listed, np.int64).reshape(count, 4)
