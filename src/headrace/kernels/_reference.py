# SPDX-License-Identifier: Apache-2.0
"""Decode a batch with the plain references, tile by tile on the host: for comparison, and where Triton is missing."""

from __future__ import annotations

import numpy as np

from headrace.kernels._batch import DeviceBatch
from headrace.kernels._reference_tile import BadTile, Tile
from headrace.kernels._status import LAST_TILE, REASON_BITS
from headrace.kernels.coded import reference as coded
from headrace.kernels.finish import reference as finish
from headrace.kernels.packed import reference as packed
from headrace.kernels.palette import reference as palette
from headrace.kernels.tables import Ints, TileField, TileKind


def run(batch: DeviceBatch) -> None:
    """Decode all tiles and write all images; the images of tiles that are not valid get a status."""
    payload, tiles, images = (part.cpu().numpy() for part in (batch.payload, batch.tiles, batch.images))
    for fields in tiles.T:
        number = int(fields[TileField.IMAGE])
        try:
            values = _DECODERS[TileKind(fields[TileField.KIND])](Tile(payload, fields))
        except BadTile as bad:
            code = LAST_TILE - int(fields[TileField.NUMBER]) << REASON_BITS | bad.reason
            batch.status[number] = max(code, int(batch.status[number]))
        else:
            finish.write(batch, fields, images[:, number], values)


def _constant(tile: Tile) -> Ints:
    colors = tile.numbers((tile.channels, 1, 1), tile.n // 8)
    return np.broadcast_to(colors, (tile.channels, tile.height, tile.width))


def _raw(tile: Tile) -> Ints:
    return tile.numbers((tile.height, tile.width, tile.channels), tile.n // 8).transpose(2, 0, 1)


_DECODERS = {
    TileKind.CONSTANT: _constant,
    TileKind.RAW: _raw,
    TileKind.PALETTE: palette.decode,
    TileKind.PACKED: packed.decode,
    TileKind.CODED: coded.decode,
}
