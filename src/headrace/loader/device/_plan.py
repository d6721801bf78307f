# SPDX-License-Identifier: Apache-2.0
"""What a device does for a batch: which part of which image it decodes, how it resizes it, and where the result goes.

The core makes the random draws for a batch, so crops and flips are those of the CPU. The CPU does what the device
cannot, such as other formats or a crop that extends beyond its image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.loader.pixels._engine import Rows
from headrace.records.rendition import decode_color
from headrace.records.schema import (
    CMYK_DTYPE_CODE,
    DEFAULT_HRI,
    DTYPE_CODES,
    DTYPE_NAMES,
    FORMAT_CODES,
    FORMAT_NAMES,
    MAX_CHANNELS,
)
from headrace.transforms import Compiled, Normalize, Views

Pair: TypeAlias = tuple[int, int]
Region: TypeAlias = tuple[int, int, int, int]
Window: TypeAlias = tuple[Pair, Pair, Pair, Pair]
"""A part of an image is resized, and a window cut out of the result: (size, resized size, begin, extent)."""
Method: TypeAlias = Literal["cut", "bilinear", "nearest"]

_MAX_SAMPLE_BYTES = 4  # of float32
_METHODS: tuple[Method, ...] = ("cut", "bilinear", "nearest")  # the core counts them from 1; 0: the device cannot


@dataclass(frozen=True, slots=True)
class Ending:
    """The last steps of a field: color, normalization, dtype and layout."""

    transform: _core.Transform
    mask: bool
    dtype: str | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    color: str
    layout: str

    @classmethod
    def of(cls, compiled: Compiled, *, mask: bool) -> Ending:
        if mask:
            return cls(compiled.mask, True, None, None, None, "keep", compiled.layout)
        normalize = next((item for item in view_transforms(compiled) if isinstance(item, Normalize)), None)
        mean, std = (tuple(normalize.mean), tuple(normalize.std)) if normalize else (None, None)  # type: ignore[arg-type]
        return cls(compiled.image, False, compiled.dtype, mean, std, compiled.color, compiled.layout)


def view_transforms(compiled: Compiled) -> tuple[Any, ...]:
    """Return the transforms of one view."""
    first = compiled.transforms[0] if compiled.transforms else None
    return tuple(first.transforms) if isinstance(first, Views) else compiled.transforms


class ViewJob(NamedTuple):
    """One view of one image."""

    position: int
    place: int  # index among all views of the batch: position · views + view
    method: Method
    corner: Pair  # the first row and column of the part of the image that is cut out
    window: Window
    region: Region  # the part of the image that is decoded: what the window needs
    upside_down: bool
    mirrored: bool
    shape: tuple[int, int, int]  # channels, height and width of the result
    stored: str  # the dtype of the image in the file
    format: str
    color: str
    """"RGB" or "keep"."""


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """A field of a batch: the jobs of the device, and the positions that the CPU does."""

    name: str
    ending: Ending
    columns: Mapping[str, npt.NDArray[Any]]
    jobs: tuple[ViewJob, ...]
    rest: Rows


def first_of(
    renditions: Sequence[Mapping[str, npt.NDArray[Any]]], formats: frozenset[str]
) -> dict[str, npt.NDArray[Any]]:
    """Return for each row the columns of the first rendition that a device decodes, or of the first one if none.

    All renditions of a sample have the same pixels, so the choice changes only the time.
    """
    chosen = dict(renditions[0])
    codes = [FORMAT_CODES[name] for name in formats]
    for rendition in reversed(renditions[1:]):
        better = np.isin(rendition["format"], codes) & ~np.isin(renditions[0]["format"], codes)
        chosen = {part: np.where(better, rendition[part], values) for part, values in chosen.items()}
    return chosen


def plan_field(
    name: str,
    ending: Ending,
    columns: Mapping[str, npt.NDArray[Any]],
    rows: Rows,
    *,
    seed: int,
    epoch: int,
    formats: frozenset[str],
    views: int,
    max_bytes: int,
) -> FieldPlan:
    """Return the jobs of one field for the samples of a batch.

    The CPU gets images of other formats than `formats`, images whose results would exceed `max_bytes`, and images with
    invalid columns in the index: the engine refuses these with an error.
    """
    sizes = np.stack([columns["height"], columns["width"]], axis=1).astype(np.int64)
    methods, *table = _core.plan_views(ending.transform, sizes, rows, views, seed, epoch).tolist()
    planned = list(zip(*table, strict=True))
    codes = {FORMAT_CODES[form] for form in formats}
    listed = (columns[part].tolist() for part in ("format", "channels", "dtype"))
    jobs: list[ViewJob] = []
    rest: list[int] = []
    n_bytes = 0
    for position, (form, stored_channels, dtype) in enumerate(zip(*listed, strict=True)):
        color, stored = _color(ending, stored_channels, dtype), DTYPE_NAMES.get(dtype)
        channels = 3 if color == "RGB" else stored_channels
        places = range(position * views, (position + 1) * views)
        if form in codes and color is not None and stored is not None and all(methods[place] for place in places):
            kind = channels, stored, FORMAT_NAMES[form], color
            own = [_job(position, place, methods[place], planned[place], kind) for place in places]
            n_bytes += sum(math.prod(job.shape) for job in own) * _MAX_SAMPLE_BYTES
            if n_bytes <= max_bytes:
                jobs += own
                continue
        rest.append(position)
    return FieldPlan(name, ending, columns, tuple(jobs), np.array(rest, np.int64))


def _job(position: int, place: int, method: int, planned: tuple[int, ...], kind: tuple[int, str, str, str]) -> ViewJob:
    """Make a job from a column of the core's table; `kind` is (channels, stored dtype, format, color)."""
    channels, *stored_as = kind
    y, x, size_y, size_x, resized_y, resized_x, begin_y, begin_x, height, width, *rest = planned
    upside_down, mirrored, *region = rest
    return ViewJob(
        position,
        place,
        _METHODS[method - 1],
        (y, x),
        ((size_y, size_x), (resized_y, resized_x), (begin_y, begin_x), (height, width)),
        (region[0], region[1], region[2], region[3]),
        bool(upside_down),
        bool(mirrored),
        (channels, height, width),
        *stored_as,
    )


def _color(ending: Ending, channels: int, dtype: int) -> str | None:
    """Return whether an `hri` image becomes "RGB" or is kept, as the core decides; None if only the CPU can do it."""
    if not 1 <= channels <= MAX_CHANNELS or dtype == CMYK_DTYPE_CODE:
        return None
    color = decode_color(ending.color, FORMAT_CODES[DEFAULT_HRI], channels, dtype)
    if color == "RGB" and (channels > 4 or (channels == 4 and dtype == DTYPE_CODES["uint8"])):
        return None  # the pixels may be CMYK, which the CPU converts
    fits = ending.mean is None or len(ending.mean) in (1, 3 if color == "RGB" else channels)
    return color if fits else None


def nearest_sources(size: int, resized: int, begin: int, count: int) -> npt.NDArray[np.int64]:
    """Return the source index of each sample of a nearest-neighbor resize, summed in the same order as in the core."""
    scale = size / resized
    steps = np.full(begin + count, scale)
    steps[0] = scale * 0.5
    sources: npt.NDArray[np.int64] = np.minimum(np.cumsum(steps)[begin:].astype(np.int64), size - 1)
    return sources
