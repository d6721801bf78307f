# SPDX-License-Identifier: Apache-2.0
"""Coded tiles up to their residuals in plain PyTorch: classes, numbers, and a sample from each of them."""

from __future__ import annotations

import torch

from headrace.kernels._batch import BLOCK, BLOCK_SAMPLES, DeviceBatch
from headrace.kernels._status import Reason
from headrace.kernels._torch_shared import Tiles, average, exclusive, slices, store, unzigzag
from headrace.kernels.tables import LANES, TileField, TileKind

FIRST_CLASS, ESCAPE, PAIR_BITS, STRIP = 8, 12, 4, 32
ZERO, PAIRS, PLAIN, TAIL, HALF, DOUBLE, AS_IS = range(7)
# Of each class with n = 8 and n = 16: the raw bits and the code (spec §6.5).
_SIMPLE = [(0, code) for code in (ZERO, PAIRS, PLAIN, TAIL, HALF, DOUBLE)]
_BY_TURNS = [(s, code) for s in range(1, 13) for code in (PLAIN, HALF)]
CLASSES = {
    8: [*_SIMPLE, *_BY_TURNS[:6], (4, PLAIN), (5, PLAIN), (6, PLAIN), (8, AS_IS)],
    16: [*_SIMPLE, *_BY_TURNS, (13, PLAIN), (16, AS_IS)],
}
NUMBERS = [0, 32, 64, 64, 64, 64, 0]  # of each code


def expand(batch: DeviceBatch) -> None:
    """Compute the residuals of all coded tiles and write them to their slots."""
    for tiles in slices(batch, batch.tiles_of(TileKind.CODED)):
        channels, down, across = tiles[TileField.CHANNELS], *_blocks(tiles)
        tiles.color()
        _check_strips(tiles)
        offsets = _SectionOffsets(tiles)
        numbers = tiles.unary(offsets.begin, offsets.class_bytes, channels * down * across)
        _expand(tiles, offsets, _classes(tiles, numbers))


class _SectionOffsets:
    """Where the parts of coded tiles start that do not depend on the classes."""

    def __init__(self, tiles: Tiles) -> None:
        channels = tiles[TileField.CHANNELS]
        self.ids_at = 1 + (channels + 3) // 4
        self.sizes_at = self.ids_at + channels * _predictor_bytes(tiles)
        wide = tiles.n == 16
        self.begin = self.sizes_at + 2 + 2 * channels + torch.where(wide, 2, 0)
        self.class_bytes = tiles.shorts(self.sizes_at[:, None])[:, 0]
        self.n_escapes = torch.where(wide, tiles.shorts(self.begin[:, None] - 2)[:, 0], 0)


def _blocks(tiles: Tiles) -> tuple[torch.Tensor, torch.Tensor]:
    return -(-tiles[TileField.HEIGHT] // BLOCK), -(-tiles[TileField.WIDTH] // BLOCK)


def _predictor_bytes(tiles: Tiles) -> torch.Tensor:
    return (-(-tiles[TileField.WIDTH] // STRIP) + 1) // 2


def _check_strips(tiles: Tiles) -> None:
    strips, stored = -(-tiles[TileField.WIDTH] // STRIP), _predictor_bytes(tiles)
    nibble = torch.arange(2 * 4 * tiles.max_channels, device=strips.device)[None]
    at = (1 + (tiles[TileField.CHANNELS] + 3) // 4)[:, None]
    chosen = tiles.bytes(at + (nibble >> 1)) >> 4 * (nibble & 1) & 15
    used = nibble % (2 * stored)[:, None] < strips[:, None]
    there = nibble < (2 * stored * tiles[TileField.CHANNELS])[:, None]
    tiles.report(Reason.PREDICTOR, (there & (chosen > torch.where(used, 4, 0))).any(1))


def _classes(tiles: Tiles, numbers: torch.Tensor) -> torch.Tensor:
    """The class of each block [n, planes, rows, columns], row by row and column by column; 0 for those not defined."""
    down, across = (count.view(-1, 1) for count in _blocks(tiles))
    most = LANES // BLOCK, -(-tiles.max_width // BLOCK)
    plane = torch.arange(tiles.max_channels, device=numbers.device)[None]
    classes = torch.zeros((*(plane + down).shape, *most), dtype=torch.long, device=numbers.device)
    highest = torch.where(tiles.n == 8, 15, 31).view(-1, 1)
    beyond = torch.zeros_like(plane + down, dtype=torch.bool)
    for y in range(most[0]):
        for x in range(most[1]):
            inside = (plane < tiles[TileField.CHANNELS].view(-1, 1)) & (y < down) & (x < across)
            k = torch.where(inside, (plane * down + y) * across + x, 0)
            left, above = classes[:, :, y, x - 1], classes[:, :, y - 1, x]
            predicted = average(left, above) if x and y else left if x else above if y else 0 * left + FIRST_CLASS
            found = (predicted + unzigzag(numbers.gather(1, k), 255)) & 255
            beyond |= inside & (found > highest)
            classes[:, :, y, x] = torch.where(inside, found, 0)
    tiles.report(Reason.CLASS, beyond.any(1))
    return torch.where(classes > highest[..., None, None], 0, classes)


def _in_raster_order(tiles: Tiles, classes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the classes as [n, planes, blocks], in each tile's own order of blocks, and which of them exist."""
    down, across = (count.view(-1, 1, 1) for count in _blocks(tiles))
    block = torch.arange(classes[0, 0].numel(), device=classes.device)[None, None]
    plane = torch.arange(classes.shape[1], device=classes.device)[None, :, None]
    exists = (plane < tiles[TileField.CHANNELS].view(-1, 1, 1)) & (block < down * across)
    place = (block // across * classes.shape[3] + block % across).clamp(max=block.shape[2] - 1)
    return torch.where(exists, classes.flatten(2).gather(2, place.expand(-1, classes.shape[1], -1)), 0), exists


def _expand(tiles: Tiles, layout: _SectionOffsets, classes: torch.Tensor) -> None:
    device = tiles.which.device
    classes, there = _in_raster_order(tiles, classes)  # [n, planes, blocks]
    wide = (tiles.n == 16).long().view(-1, 1, 1)
    tables = torch.tensor([[*CLASSES[8], *[(0, ZERO)] * 16], CLASSES[16]], device=device)  # [2, 32, s and code]
    s, code = tables[wide, classes].unbind(-1)
    n_numbers = torch.tensor(NUMBERS, device=device)[code]

    raw_starts = exclusive(8 * s.flatten(1), 1).view(s.shape) + (layout.begin + layout.class_bytes).view(-1, 1, 1)
    sections_at = layout.begin + layout.class_bytes + 8 * s.flatten(1).sum(1)
    plane = torch.arange(s.shape[1], device=device)[None]
    sizes = tiles.shorts(layout.sizes_at[:, None] + 2 + 2 * plane)
    sizes = torch.where(plane < tiles[TileField.CHANNELS][:, None], sizes, 0)
    escapes_at = sections_at + sizes.sum(1)
    extra_at = escapes_at + 2 * layout.n_escapes
    tiles.report(Reason.SECTION, extra_at > tiles[TileField.LENGTH])

    # Each of the 64 samples of a block [n, planes, blocks, 64] finds its own number, bits and escape.
    q = _samples_of_numbers(tiles, sections_at[:, None] + exclusive(sizes, 1), sizes, n_numbers, code)
    code, s, sample = code[..., None], s[..., None], torch.arange(BLOCK_SAMPLES, device=device)
    second = (code == PAIRS) & (sample % 2 == 1)  # shares the number of the sample before it
    e = _extra_bits(q, code)
    escaped = (wide[..., None] == 1) & (q >= ESCAPE) & (code >= PLAIN) & (code <= DOUBLE)
    counted = torch.where(second, 0, e).flatten(1)
    bit = exclusive(counted, 1).view(q.shape) - torch.where(second, e, 0)
    extra = tiles.bits(extra_at.view(-1, 1, 1, 1), bit, e)
    z = (_high(q, extra, code, second) << s) + tiles.samples(raw_starts[..., None], sample, s, BLOCK_SAMPLES)
    own_escape = exclusive(escaped.long().flatten(1), 1).view(q.shape)
    z = torch.where(escaped, tiles.shorts(escapes_at.view(-1, 1, 1, 1) + 2 * own_escape), z)
    top = (1 << tiles.n.view(-1, 1, 1, 1)) - 1
    _store_residuals(tiles, unzigzag(z & top, top), there)
    tiles.report(Reason.ESCAPES, escaped.flatten(1).sum(1) != layout.n_escapes)
    tiles.check_end(extra_at, counted.sum(1))


def _samples_of_numbers(
    tiles: Tiles, begin: torch.Tensor, size: torch.Tensor, n_numbers: torch.Tensor, code: torch.Tensor
) -> torch.Tensor:
    """The number that each sample depends on [n, planes, blocks, 64]; 0 where there is none."""
    per_plane = [
        tiles.unary(begin[:, plane], size[:, plane], n_numbers[:, plane].sum(1)) for plane in range(n_numbers.shape[1])
    ]
    first = exclusive(n_numbers, 2)[..., None]
    sample = torch.arange(BLOCK_SAMPLES, device=begin.device)
    own = first + torch.where(code[..., None] == PAIRS, sample // 2, sample)
    found = []
    for plane, numbers in enumerate(per_plane):
        spare = torch.nn.functional.pad(numbers, (0, 1))
        places = own[:, plane].flatten(1).clamp(max=spare.shape[1] - 1)
        found.append(spare.gather(1, places).view(own[:, plane].shape))
    return torch.where(n_numbers[..., None] > 0, torch.stack(found, 1), 0)


def _extra_bits(q: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
    """How many extra bits a number reads."""
    pairs = sum((q >= 1 << bit).long() for bit in range(PAIR_BITS))
    one = ((code == HALF) & (q < 1)) | ((code == DOUBLE) & (q < 2)) | ((code == TAIL) & (q >= 1) & (q <= 2))
    return torch.where(code == PAIRS, pairs, one.long())


def _high(q: torch.Tensor, extra: torch.Tensor, code: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The value above the raw bits, modulo 256."""
    half, double, tail = ((code == each).long() for each in (HALF, DOUBLE, TAIL))
    beyond = (half + double) * (q >= 1) + (double + tail) * (q >= 2) + tail * (q >= 3)
    pair = torch.where(second, q - extra, extra)
    return torch.where(code == PAIRS, pair, torch.where(code == AS_IS, 0, q + beyond + extra)) & 255


def _store_residuals(tiles: Tiles, residuals: torch.Tensor, there: torch.Tensor) -> None:
    across = _blocks(tiles)[1].view(-1, 1, 1, 1)
    block = torch.arange(residuals.shape[2], device=across.device)[:, None]
    sample = torch.arange(BLOCK_SAMPLES, device=across.device)[None]
    y = block // across * BLOCK + sample // BLOCK
    x = block % across * BLOCK + sample % BLOCK
    inside = (
        there[..., None]
        & (y < tiles[TileField.HEIGHT].view(-1, 1, 1, 1))
        & (x < tiles[TileField.WIDTH].view(-1, 1, 1, 1))
    )
    plane = torch.arange(residuals.shape[1], device=across.device)[None]
    slot = tiles[TileField.VALUES][:, None] + plane * LANES * (tiles[TileField.WIDTH][:, None] + 2 * (LANES - 1))
    store(tiles.batch.values, slot[:, :, None, None] + (x + 2 * y) * LANES + y, residuals, inside)
