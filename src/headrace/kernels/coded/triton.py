# SPDX-License-Identifier: Apache-2.0
"""Coded tiles up to their residuals: classes and beginnings of blocks, unary numbers, and a sample from each of them.

Three kernels. The first takes a tile: what it finds says where everything else of the tile is. The second takes a
plane, whose unary section can be read on its own. The third takes some blocks of a plane: each sample fetches its bits.
"""

from __future__ import annotations

from headrace.kernels._batch import DeviceBatch
from headrace.kernels._triton_shared import phases_of
from headrace.kernels.backend import sized
from headrace.kernels.coded._expand import coded_expand_kernel
from headrace.kernels.coded._index import coded_index_kernel
from headrace.kernels.coded._numbers import coded_numbers_kernel
from headrace.kernels.tables import TileKind

PLANES, WARPS = 8, 4
BLOCKS = sized(8, 128)
INDEX_CHUNK, CHUNK = sized(128, 1024), sized(256, 1024)  # bytes of a unary section that are read at a time


def _index(batch: DeviceBatch) -> None:
    """Find the classes of all blocks, and where everything is."""
    own = batch.tiles_of(TileKind.CODED)
    for phases in phases_of(batch.payload.device):
        coded_index_kernel[(len(own),)](
            batch.payload,
            batch.tiles,
            batch.tiles.shape[1],
            own,
            batch.numbers,
            batch.entries,
            batch.status,
            PHASES=phases,
            PLANES=PLANES,
            CHUNK=INDEX_CHUNK,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )


def _numbers(batch: DeviceBatch) -> None:
    """Read the unary numbers of all planes, and count what they ask for."""
    chains = batch.chains_of(TileKind.CODED)
    for phases in phases_of(batch.payload.device):
        coded_numbers_kernel[(chains.shape[1],)](
            batch.payload,
            batch.tiles,
            batch.tiles.shape[1],
            chains,
            chains.shape[1],
            batch.numbers,
            batch.entries,
            batch.status,
            PHASES=phases,
            BLOCKS=BLOCKS,
            CHUNK=CHUNK,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )


def _expand(batch: DeviceBatch) -> None:
    """Make the residuals of all samples and write them to their slots."""
    chains = batch.chains_of(TileKind.CODED)
    most_blocks = 4 * -(-batch.staged.max_width // 8)
    coded_expand_kernel[(chains.shape[1], -(-most_blocks // BLOCKS))](
        batch.payload,
        batch.tiles,
        batch.tiles.shape[1],
        chains,
        chains.shape[1],
        batch.numbers,
        batch.entries,
        batch.values,
        batch.status,
        WIDE=batch.wide,
        BLOCKS=BLOCKS,
        num_warps=WARPS,
        enable_fp_fusion=False,
    )


def expand(batch: DeviceBatch) -> None:
    """Compute the residuals of all coded tiles and write them to their slots."""
    _index(batch)
    _numbers(batch)
    _expand(batch)
