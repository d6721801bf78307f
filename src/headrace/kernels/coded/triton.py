# SPDX-License-Identifier: Apache-2.0
"""The launches that compute the residuals of coded tiles.

Three kernels. The first handles a tile: its classes and where everything else of the tile starts. The second handles
a plane: its unary numbers. The third also handles a plane, with one thread per block: its residuals.
"""

from __future__ import annotations

from headrace.kernels._batch import BLOCK, DeviceBatch
from headrace.kernels._triton_shared import phases_of
from headrace.kernels.backend import sized
from headrace.kernels.coded._expand import coded_expand_kernel
from headrace.kernels.coded._index import coded_index_kernel
from headrace.kernels.coded._numbers import coded_numbers_kernel
from headrace.kernels.tables import LANES, TileKind

PLANES, INDEX_WARPS = 8, 1  # four rows of blocks of eight planes are the 32 lanes of a warp
BLOCKS, BLOCK_WARPS = sized(64, 128), 2  # the encoder's tiles are 128 pixels wide: 64 blocks per plane
CHAINS, WORDS = sized(1, 64), sized(1, 16)
INDEX_CHUNK, CHUNK = sized(32, 256), sized(64, 256)  # words of a unary section that are read at a time


def expand(batch: DeviceBatch) -> None:
    """Compute the residuals of all coded tiles and write them to their slots."""
    own, chains = batch.tiles_of(TileKind.CODED), batch.chains_of(TileKind.CODED)
    n_tiles, n_chains = batch.tiles.shape[1], chains.shape[1]
    scratch = batch.numbers, batch.entries
    phases = phases_of(batch.payload.device)
    max_blocks = LANES // BLOCK * -(-batch.staged.max_width // BLOCK)
    for phase in phases:
        coded_index_kernel[(len(own),)](
            batch.payload, batch.tiles, n_tiles, own, *scratch, batch.status,
            PHASES=phase, PLANES=PLANES, CHUNK=INDEX_CHUNK, num_warps=INDEX_WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    for phase in phases:
        coded_numbers_kernel[(n_chains,)](
            batch.payload, batch.tiles, n_tiles, chains, n_chains, *scratch, batch.status,
            PHASES=phase, WIDE=batch.wide, BLOCKS=BLOCKS, CHUNK=CHUNK, WORDS=WORDS,
            num_warps=BLOCK_WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    coded_expand_kernel[(-(-n_chains // CHAINS), -(-max_blocks // BLOCKS))](
        batch.payload, batch.tiles, n_tiles, chains, n_chains, *scratch, batch.values, batch.status,
        WIDE=batch.wide, BLOCKS=BLOCKS, CHAINS=CHAINS, num_warps=BLOCK_WARPS, enable_fp_fusion=False,
    )  # fmt: skip
