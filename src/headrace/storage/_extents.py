# SPDX-License-Identifier: Apache-2.0
"""Which bytes of a file are wanted, and in how few reads they are had: plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Pages of the kernel and of GPUDirect Storage: a read that begins and ends on their bounds needs no bounce buffer.
BLOCK_BYTES = 4096
# A read that goes on over a gap of this size is no slower than two: a device's latency buys about as many bytes.
_MOST_GAP = 64 << 10


class Extent(NamedTuple):
    """A piece of a file, in bytes."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


class Run(NamedTuple):
    """One read: from a block's begin to a block's end, or to the end of the file."""

    offset: int
    length: int
    extents: tuple[int, ...]
    """Which of the wanted extents lie in it, by their numbers."""


def coalesce(
    extents: Sequence[Extent], n_bytes: int, *, block: int = BLOCK_BYTES, most_gap: int = _MOST_GAP
) -> list[Run]:
    """Cover the extents of a file of `n_bytes` with aligned reads, in the file's order.

    Extents may come in any order, touch and overlap. What lies between two of them is read along if it is short.

    Raises:
        ValueError: An extent does not lie in the file, or is empty.

    """
    runs: list[Run] = []
    for number in sorted(range(len(extents)), key=lambda at: extents[at]):
        extent = extents[number]
        if extent.length < 1 or extent.offset < 0 or extent.end > n_bytes:
            raise ValueError(f"{extent} is empty, or not within the file's {n_bytes} bytes")
        begin = extent.offset // block * block
        end = min(-(-extent.end // block) * block, n_bytes)
        if runs and begin <= runs[-1].offset + runs[-1].length + most_gap:
            last = runs[-1]
            end = max(end, last.offset + last.length)
            runs[-1] = Run(last.offset, end - last.offset, (*last.extents, number))
        else:
            runs.append(Run(begin, end - begin, (number,)))
    return runs
