# SPDX-License-Identifier: Apache-2.0
"""The source of a recipe with `Mosaic`: the engine decodes the tiles, and this puts them together.

A batch of B samples is two batches of the engine: the first tile of each sample, and the other three of those that have
partners. Each tile is a field of its own, whose images are those of the partners and whose draws are those of the
sample, so each is decoded and resized only where it is seen. The canvases are made when the batch is taken, by as many
threads as the engine has. Nothing but tiles is kept in between: at most one `size` per tile.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import HeadraceError, TransformError
from headrace.loader._options import Options
from headrace.loader.pixels._engine import EngineSource, FieldPart, PixelBatch, Rows, Stack
from headrace.records import Dataset
from headrace.records.schema import PIXEL_TYPES
from headrace.transforms import Compiled
from headrace.transforms.detection.canvas import N_TILES, MosaicTiles, Partners, canvas_shape, fill_canvases

_Failure = tuple[int, int, int, str, str]


class MosaicSource:
    """Makes batches whose samples are made of several images."""

    def __init__(
        self, dataset: Dataset, names: Sequence[str], compiled: Compiled, *, seed: int, options: Options
    ) -> None:
        tensors = [name for name in names if dataset.fields[name] not in PIXEL_TYPES]
        if tensors:
            raise TransformError(
                f"Mosaic combines images and masks, but the field {tensors[0]!r} holds tensors: omit it from `fields`"
            )
        self.engine = EngineSource(dataset, names, compiled, seed=seed, options=options)
        self.max_batch_bytes = self.engine.max_batch_bytes
        self.names, self.seed, self.threads = tuple(names), seed, options.threads
        self.row_name = dataset.row_name
        self.canvases = {
            name: compiled.mask if dataset.fields[name] == "mask" else compiled.image for name in self.names
        }
        self._tiles, self._gather, self._n = tiles_of(compiled), dataset.gather, len(dataset)
        self._parts = {
            name: self._tiles.mask if dataset.fields[name] == "mask" else self._tiles.image for name in self.names
        }
        self.canvas_seconds = 0.0

    def submit(self, rows: Rows, epoch: int) -> PixelBatch:
        """Submit a batch. Returns at once."""
        happens, positions = self._tiles.partners(rows, self._n, seed=self.seed, epoch=epoch)
        partners = self._gather.rows(positions[happens].reshape(-1)).reshape(-1, N_TILES - 1)
        batches = [self.engine.submit_parts([self._part(name, 0, rows) for name in self.names], rows, epoch)]
        if len(partners):
            others = [
                self._part(name, tile, partners[:, tile - 1]) for name in self.names for tile in range(1, N_TILES)
            ]
            batches.append(self.engine.submit_parts(others, rows[happens], epoch))
        return _MosaicBatch(self, batches, rows, Partners(happens, partners), epoch)

    def _part(self, name: str, tile: int, rows: Rows) -> FieldPart:
        return name, [(self._parts[name][tile], 1)], np.ascontiguousarray(rows)

    def memory(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Return memory of the engine's pool, which is used again when the last view of it is gone."""
        return self.engine.memory(n_bytes)

    def stats(self) -> dict[str, Any]:
        stats = self.engine.stats()
        return {**stats, "transform_seconds": stats["transform_seconds"] + self.canvas_seconds}

    def set_storage_rate(self, rate: float | None) -> None:
        self.engine.set_storage_rate(rate)

    def close(self) -> None:
        self.engine.close()


def tiles_of(compiled: Compiled) -> MosaicTiles:
    """Return the compiled `Mosaic`."""
    if compiled.tiles is None:
        raise ValueError("the transforms have no Mosaic")
    return compiled.tiles


class _MosaicBatch:
    """A batch whose tiles are in progress."""

    def __init__(
        self, source: MosaicSource, batches: list[PixelBatch], rows: Rows, partners: Partners, epoch: int
    ) -> None:
        self._source, self._batches, self._rows, self._epoch = source, batches, rows, epoch
        self._partners = partners.positions  # rows of the dataset, of the samples that have partners
        self._with_partners = np.flatnonzero(partners.happens)
        self._made: tuple[list[Stack], list[_Failure]] | None = None

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        return all(batch.wait(max(0.0, deadline - time.monotonic())) for batch in self._batches)

    def take(self) -> list[Stack]:
        return self._finished()[0]

    def failures(self) -> list[_Failure]:
        return self._finished()[1]

    def _finished(self) -> tuple[list[Stack], list[_Failure]]:
        if self._made is None:
            self._made = self._make()
            self._batches = []  # the memory of the tiles is free
        return self._made

    def _make(self) -> tuple[list[Stack], list[_Failure]]:
        failures = self._tile_failures()
        failed = {position for position, *_ in failures}
        taken = [batch.take() for batch in self._batches]
        order = {int(position): number for number, position in enumerate(self._with_partners)}
        stacks: list[Stack] = []
        for number, name in enumerate(self._source.names):
            tiles: list[list[Any]] = []
            for position in range(len(self._rows)):
                others = (
                    [taken[1][number * (N_TILES - 1) + k][order[position]] for k in range(N_TILES - 1)]
                    if (position in order and position not in failed)
                    else []
                )
                tiles.append([] if position in failed else [taken[0][number][position], *others])
            stack, wrong = self._canvases(name, tiles)
            stacks.append(stack)
            failures += [(position, number, 0, kind, message) for position, kind, message in wrong]
        return stacks, sorted(failures)

    def _tile_failures(self) -> list[_Failure]:
        """Return the failures of tiles as those of their samples; a message names the partner that failed."""
        failures = list(self._batches[0].failures())
        for batch in self._batches[1:]:
            for at, part, rendition, kind, message in batch.failures():
                field, k = divmod(part, N_TILES - 1)
                partner = self._source.row_name(int(self._partners[at, k]))
                about = f"its mosaic needs {partner}, rendition {rendition}: {message}"
                failures.append((int(self._with_partners[at]), field, 0, kind, about))
        return failures

    def _canvases(self, name: str, tiles: list[list[Any]]) -> tuple[Stack, list[tuple[int, str, str]]]:
        """Return the samples of a field, and (position, error class, message) of each that failed."""
        source, transform = self._source, self._source.canvases[name]
        shapes: dict[int, tuple[tuple[int, ...], str]] = {}
        wrong: list[tuple[int, str, str]] = []
        for position, parts in enumerate(tiles):
            key = {"seed": source.seed, "epoch": self._epoch, "sample": int(self._rows[position])}
            try:
                if parts:
                    shapes[position] = canvas_shape(transform, parts[0], key)
            except (HeadraceError, ValueError) as error:
                wrong.append((position, type(error).__name__, str(error)))
        chosen = list(shapes)
        out = self._outputs(shapes)
        made = [out[at] for at in chosen]
        draws = {"seed": source.seed, "epoch": self._epoch, "threads": source.threads}
        failed, seconds = fill_canvases(transform, [tiles[at] for at in chosen], self._rows[chosen], made, **draws)
        source.canvas_seconds += seconds
        return out, wrong + [(chosen[number], kind, message) for number, kind, message in failed]

    def _outputs(self, shapes: dict[int, tuple[tuple[int, ...], str]]) -> Any:
        """Return an array for all samples if they have one shape, else a list with None for those that failed."""
        n = len(self._rows)
        if len(set(shapes.values())) == 1:
            sides, dtype = next(iter(shapes.values()))
            n_bytes = n * math.prod(sides) * np.dtype(dtype).itemsize
            return self._source.memory(n_bytes)[:n_bytes].view(dtype).reshape(n, *sides)
        out: list[Any] = [None] * n
        for at, (sides, dtype) in shapes.items():
            out[at] = np.empty(sides, dtype)
        return out
