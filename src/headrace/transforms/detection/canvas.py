# SPDX-License-Identifier: Apache-2.0
"""The canvases of mosaics: whose images they have, and how tiles that were decoded become one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import TransformError
from headrace.transforms.detection._mosaic import Mosaic

if TYPE_CHECKING:
    from headrace import _core
    from headrace.transforms._compile import Compiled


N_TILES = 4


class Partners(NamedTuple):
    """Which further samples a mosaic takes."""

    happens: npt.NDArray[np.bool_]
    """[B]: whether a sample has partners."""
    positions: npt.NDArray[np.int64]
    """[B, 3]: positions of the partners in the dataset or the selection of its samples."""


@dataclass(frozen=True)
class MosaicTiles:
    """A compiled `Mosaic`: how the images of a canvas are made, and where they are."""

    mosaic: Mosaic
    image: tuple[_core.Transform, ...]
    """Make tile 0 to 3 of an image, cut to what is seen of it."""
    mask: tuple[_core.Transform, ...]
    placed: tuple[_core.Transform, ...]
    """All that is done to positions in the image that becomes tile 0 to 3."""

    def partners(self, rows: npt.NDArray[np.int64], n: int, *, seed: int, epoch: int) -> Partners:
        """Choose the partners of samples, given as rows of the dataset, among `n` positions."""
        if n >= 2**32:
            raise TransformError(f"Mosaic needs a dataset or selection of fewer than 2^32 samples; got {n}")
        keys = np.ascontiguousarray(rows, np.uint64)
        happens = np.zeros(len(keys), np.uint8)
        positions = np.zeros((len(keys), N_TILES - 1), np.int64)
        if len(keys):
            from headrace import _core  # noqa: PLC0415  # transforms can be described without loading the extension

            _core.draw_mosaics(self.image[0], keys, n, happens, positions, seed=seed, epoch=epoch)
        return Partners(happens.astype(np.bool_), positions)


def make_canvas(transform: _core.Transform, tiles: Sequence[npt.NDArray[Any]], key: Mapping[str, int]) -> Any:
    """Return what a transform makes of the canvas of one sample, whose draws depend on `key`."""
    out = empty_canvas(transform, tiles[0], key)
    draws = {"seed": key["seed"], "epoch": key["epoch"]}
    failed, _ = fill_canvases(transform, [tiles], np.array([key["sample"]]), [out], threads=1, **draws)
    if failed:
        raise TransformError(failed[0][2])
    return out


def empty_canvas(transform: _core.Transform, tile: npt.NDArray[Any], key: Mapping[str, int]) -> npt.NDArray[Any]:
    """Return an array for what a transform makes of the canvas with this tile."""
    return np.empty(*canvas_shape(transform, tile, key))


def canvas_shape(
    transform: _core.Transform, tile: npt.NDArray[Any], key: Mapping[str, int]
) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of what a transform makes of the canvas with this tile."""
    channels = tile.shape[2] if tile.ndim == 3 else 1
    height, width = tile.shape[:2]
    seed, epoch, sample = (key[name] for name in ("seed", "epoch", "sample"))
    return transform.shape(height, width, channels, tile.dtype.name, seed=seed, epoch=epoch, sample=sample)


def fill_canvases(
    transform: _core.Transform,
    tiles: Sequence[Sequence[npt.NDArray[Any]]],
    rows: npt.NDArray[Any],
    out: Sequence[npt.NDArray[Any]],
    *,
    seed: int,
    epoch: int,
    threads: int,
) -> tuple[list[tuple[int, str, str]], float]:
    """Make what a transform makes of the canvases of samples, without the GIL.

    Return (number, error class, message) for each sample that failed, and the busy seconds of all threads.
    """
    from headrace import _core  # noqa: PLC0415  # transforms can be described without loading the extension

    keys = np.ascontiguousarray(rows, np.uint64)
    return _core.transform_canvases(transform, tiles, keys, out, seed=seed, epoch=epoch, threads=threads)


def check_fields(compiled: Compiled, fields: Mapping[str, str]) -> None:
    """Raise ValueError if transforms need other fields than a dataset has; `fields` has the type of each."""
    boxes = [name for name, kind in fields.items() if kind == "boxes"]
    if compiled.needs_boxes and len(boxes) != 1:
        raise ValueError(
            f"RandomIoUCrop needs a dataset with exactly one field of boxes; its boxes are {', '.join(boxes) or 'none'}"
        )
