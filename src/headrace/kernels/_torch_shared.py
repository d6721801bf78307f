# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch references share: tables, bytes and bits of many tiles at once, and unary sections.

Every function is vectorized over tiles (or chains), which are the first dimension. Positions are relative to the tile,
and bytes outside of it read as 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from headrace.kernels._batch import DeviceBatch
from headrace.kernels._status import LAST_TILE, REASON_BITS, Reason
from headrace.kernels.tables import LANES, SKEW, TileField, TileKind

SLICE = 256  # tiles or chains at a time, to bound memory


@dataclass(frozen=True)
class Tiles:
    """Some tiles of a batch, or the tiles of some chains."""

    batch: DeviceBatch
    which: torch.Tensor  # int64 [n]

    def __getitem__(self, field: TileField) -> torch.Tensor:
        return self.batch.tiles[field][self.which]  # [n]

    @property
    def n(self) -> torch.Tensor:
        return self[TileField.BITS]

    @property
    def max_channels(self) -> int:
        return int(self[TileField.CHANNELS].max())

    @property
    def max_width(self) -> int:
        return int(self[TileField.WIDTH].max())

    def bytes(self, at: torch.Tensor) -> torch.Tensor:
        """The bytes at these positions [n, …]."""
        shape = (-1,) + (1,) * (at.ndim - 1)
        inside = (at >= 0) & (at < self[TileField.LENGTH].view(shape))
        places = torch.where(inside, self[TileField.AT].view(shape) + at, 0)
        return torch.where(inside, self.batch.payload[places].long(), 0)

    def shorts(self, at: torch.Tensor) -> torch.Tensor:
        return self.bytes(at) | self.bytes(at + 1) << 8

    def bits(self, start: torch.Tensor, bit: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """`count` bits, at most 8, from bit number `bit` after byte `start`."""
        window = self.shorts(start + (bit >> 3))
        return (window >> (bit & 7)) & ((1 << count) - 1)

    def samples(self, start: torch.Tensor, i: torch.Tensor, b: torch.Tensor, run: int) -> torch.Tensor:
        """Sample i of a run of samples of b bits; where b exceeds 8, low bytes come first (spec §5.1)."""
        low, high = b.clamp(max=8), (b - 8).clamp(min=0)
        return self.bits(start, i * low, low) | self.bits(start + run, i * high, high) << 8

    def report(self, reason: Reason, flawed: torch.Tensor) -> None:
        """Set the status of the images of flawed tiles."""
        codes = torch.where(flawed, (LAST_TILE - self[TileField.NUMBER]) << REASON_BITS | reason, 0).int()
        self.batch.status.scatter_reduce_(0, self[TileField.IMAGE], codes, "amax")

    def check_end(self, begin: torch.Tensor, n_bits: torch.Tensor) -> None:
        """Report tiles that do not end with `n_bits` from byte `begin`, padded with zeros."""
        self.report(Reason.LENGTH, begin + (n_bits + 7 >> 3) != self[TileField.LENGTH])
        last = self.bytes((begin + (n_bits >> 3))[:, None])[:, 0]
        self.report(Reason.PADDING, (n_bits & 7 > 0) & (last >> (n_bits & 7) != 0))

    def color(self) -> torch.Tensor:
        """Return the color codes of all channels [n, 64] and report those that are not defined (spec §5.4)."""
        channels = self[TileField.CHANNELS][:, None]
        channel = torch.arange(64, device=self.which.device)[None]
        codes = (self.bytes(1 + (channel >> 2) + 0 * channels) >> 2 * (channel & 3)) & 3
        codes = torch.where(channel < (channels + 3) // 4 * 4, codes, 0)
        highest = torch.where(channel == 0, 1, torch.where(channel == 1, 0, 2))
        highest = torch.where((channels == 1) | (channel >= channels), 0, highest)
        self.report(Reason.COLOR, (codes > highest).any(1))
        return codes

    def unary(self, begin: torch.Tensor, size: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """Return the `count` numbers of a unary section of each tile; report sections with another count."""
        fits = begin + size <= self[TileField.LENGTH]
        self.report(Reason.SECTION, ~fits)
        size = torch.where(fits, size, 0)
        place = torch.arange(_largest(size), device=self.which.device)[None]
        octets = torch.where(place < size[:, None], self.bytes(begin[:, None] + place), 0)  # [n, bytes]
        ones = (octets[:, :, None] >> torch.arange(8, device=octets.device) & 1).flatten(1)  # [n, bits]
        last = self.bytes((begin + size - 1)[:, None])[:, 0]
        self.report(Reason.UNARY, (ones.sum(1) != count) | ((size > 0) & (last == 0)))
        highest = _largest(count)
        rank = ones.cumsum(1) - 1
        rank = torch.where((ones == 1) & (rank < count[:, None]), rank, highest)  # the rest goes to a spare column
        positions = torch.full((len(size), highest + 1), 255, device=octets.device)
        positions.scatter_(1, rank, torch.arange(ones.shape[1], device=octets.device).expand_as(rank))
        return (torch.diff(positions[:, :highest], dim=1, prepend=torch.full_like(positions[:, :1], -1)) - 1) & 255

    def slots(self, plane: torch.Tensor, kind: TileKind) -> torch.Tensor:
        """Offset of a plane of each tile in the `values` scratch."""
        return self[TileField.VALUES] + plane * LANES * (self[TileField.WIDTH] + SKEW[kind] * (LANES - 1))


def slices(batch: DeviceBatch, numbers: torch.Tensor) -> Iterator[Tiles]:
    """Yield the tiles of these numbers, some at a time."""
    for which in torch.split(numbers.long(), SLICE):
        yield Tiles(batch, which)


def unzigzag(z: torch.Tensor, top: torch.Tensor | int) -> torch.Tensor:
    """Inverse zigzag; `top` is 2^n - 1 (spec §5.3)."""
    return torch.where(z & 1 == 0, z >> 1, top - (z >> 1))


def average(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a + b + 1) >> 1


def exclusive(sizes: torch.Tensor, dim: int) -> torch.Tensor:
    """Offset of each item if items of these sizes lie back to back."""
    return sizes.cumsum(dim) - sizes


def grid(rows: int, columns: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [rows, 1] and columns [1, columns]."""
    return torch.arange(rows, device=device)[:, None], torch.arange(columns, device=device)[None, :]


def store(scratch: torch.Tensor, places: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> None:
    """Write values to their places where the mask is true."""
    chosen = mask.expand(values.shape)
    scratch[places.expand(values.shape)[chosen]] = values[chosen].to(scratch.dtype)


def _largest(counts: torch.Tensor) -> int:
    return int(counts.max()) if len(counts) else 0
