# SPDX-License-Identifier: Apache-2.0
"""What a file says of itself, without decoding a pixel."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from headrace import _core

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The head of an encoded image."""

    width: int
    height: int
    channels: int
    dtype: np.dtype[Any]
    mode: Literal["fast", "dense"]
    tile_shape: tuple[int, int]
    """Rows and columns of a tile; those at the right and bottom edges may be smaller."""
    metadata: Mapping[str, bytes]
    n_bytes: int
    """Size of the encoded image."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that `decode` gives: `(H, W)` for one channel, otherwise `(H, W, C)`."""
        if self.channels == 1:
            return (self.height, self.width)
        return (self.height, self.width, self.channels)


def inspect(data: Buffer) -> ImageInfo:
    """Read the head of an encoded image; its checksum and index are verified, its tiles are not looked at."""
    header = _core.inspect(data)
    return ImageInfo(
        width=header.width,
        height=header.height,
        channels=header.channels,
        dtype=np.dtype(header.dtype),
        mode=cast('Literal["fast", "dense"]', header.mode),
        tile_shape=(_core.TILE_HEIGHT, header.tile_width),
        metadata=MappingProxyType(header.metadata),
        n_bytes=header.n_bytes,
    )
