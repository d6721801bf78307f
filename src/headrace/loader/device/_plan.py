# SPDX-License-Identifier: Apache-2.0
"""What a device has to do for a batch: which part of which image, how it is resized, and where it goes.

The draws are the core's own, a batch at a time, so a crop or a flip is that of the CPU. What the device has no way to
do, as another format or a crop that sticks out of its image, is left to the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.loader.pixels._engine import Rows
from headrace.records.schema import (
    CMYK_DTYPE_CODE,
    COLOR_DTYPE_CODES,
    DTYPE_CODES,
    DTYPE_NAMES,
    FORMAT_CODES,
    FORMAT_NAMES,
)
from headrace.transforms import Compiled, Normalize, Views

Pair: TypeAlias = tuple[int, int]
Region: TypeAlias = tuple[int, int, int, int]
Method: TypeAlias = Literal["cut", "bilinear", "nearest"]

MAX_CHANNELS = 64
_MAX_SAMPLE_BYTES = 4  # of float32
_METHODS: tuple[Method | None, ...] = (None, "cut", "bilinear", "nearest")  # as the core numbers them


@dataclass(frozen=True, slots=True)
class Ending:
    """What becomes of the levels of a field at last."""

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
        first = compiled.transforms[0] if compiled.transforms else None
        inner = first.transforms if isinstance(first, Views) else compiled.transforms
        normalize = next((item for item in inner if isinstance(item, Normalize)), None)
        mean, std = (tuple(normalize.mean), tuple(normalize.std)) if normalize else (None, None)  # type: ignore[arg-type]
        return cls(compiled.image, False, compiled.dtype, mean, std, compiled.color, compiled.layout)


class Window(NamedTuple):
    """A part of an image, `size`, is resized to `resized`, of which `extent` pixels from `begin` on are wanted."""

    size: Pair
    resized: Pair
    begin: Pair
    extent: Pair


class ViewJob(NamedTuple):
    """One view of one image."""

    position: int
    place: int
    """Among all views of the batch: position · views + view."""
    method: Method
    corner: Pair
    """The first row and column of the part of the image that is cut out."""
    window: Window
    region: Region
    """The part of the image that is decoded: what the window needs."""
    upside_down: bool
    mirrored: bool
    shape: tuple[int, int, int]
    """Of what comes out: channels, height, width."""
    stored: str
    """The dtype of the image in the file."""
    format: str
    color: str
    """"RGB" or "keep"."""


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """A field of a batch: what the device does of it, and the positions that are left to the CPU."""

    name: str
    ending: Ending
    columns: Mapping[str, npt.NDArray[Any]]
    jobs: tuple[ViewJob, ...]
    rest: Rows


class Key(NamedTuple):
    """What draws depend on, but for the sample and the view."""

    seed: int
    epoch: int


def first_of(
    renditions: Sequence[Mapping[str, npt.NDArray[Any]]], formats: frozenset[str]
) -> dict[str, npt.NDArray[Any]]:
    """Of the columns of each rendition, those of the first that a device decodes; of the first of all if there is none.

    All renditions of a sample hold the same picture, so which one it is shows in nothing but the time it takes.
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
    key: Key,
    *,
    formats: frozenset[str],
    views: int,
    max_bytes: int,
) -> FieldPlan:
    """Work out the jobs of one field for the samples of a batch.

    Left to the CPU are images in other than `formats`, what comes out of them beyond `max_bytes`, and all that the
    index cannot mean: the engine refuses them, with an error that says why.
    """
    sizes = np.stack([columns["height"], columns["width"]], axis=1).astype(np.int64)
    table = _core.plan_views(ending.transform, sizes, rows, views, key.seed, key.epoch)
    planned = _Planned(views, table.tolist())
    codes = {FORMAT_CODES[form] for form in formats}
    listed = (columns[part].tolist() for part in ("format", "channels", "dtype"))
    jobs: list[ViewJob] = []
    rest: list[int] = []
    n_bytes = 0
    for position, (form, stored_channels, dtype) in enumerate(zip(*listed, strict=True)):
        color, stored = _color(ending, stored_channels, dtype), DTYPE_NAMES.get(dtype)
        channels = 3 if color == "RGB" else stored_channels
        if form in codes and color is not None and stored is not None and planned.can_do(position):
            own = list(planned.jobs(position, channels, stored, FORMAT_NAMES[form], color))
            n_bytes += sum(math.prod(job.shape) for job in own) * _MAX_SAMPLE_BYTES
            if n_bytes <= max_bytes:
                jobs += own
                continue
        rest.append(position)
    return FieldPlan(name, ending, columns, tuple(jobs), np.array(rest, np.int64))


class _Planned:
    """The core's table of views, as numbers of Python's: a list for each row."""

    def __init__(self, views: int, table: list[list[int]]) -> None:
        self._views = views
        self._methods = table[0]
        self._columns = list(zip(*table[1:], strict=True))

    def can_do(self, position: int) -> bool:
        """Whether the device can do all views of a sample."""
        begin = position * self._views
        return 0 not in self._methods[begin : begin + self._views]

    def jobs(self, position: int, channels: int, stored: str, form: str, color: str) -> Iterator[ViewJob]:
        for place in range(position * self._views, (position + 1) * self._views):
            method = _METHODS[self._methods[place]]
            assert method is not None, "asked first"
            y, x, size_y, size_x, resized_y, resized_x, begin_y, begin_x, height, width, *rest = self._columns[place]
            upside_down, mirrored, *region = rest
            yield ViewJob(
                position,
                place,
                method,
                (y, x),
                Window((size_y, size_x), (resized_y, resized_x), (begin_y, begin_x), (height, width)),
                (region[0], region[1], region[2], region[3]),
                bool(upside_down),
                bool(mirrored),
                (channels, height, width),
                stored,
                form,
                color,
            )


def _color(ending: Ending, channels: int, dtype: int) -> str | None:
    """Whether an `hri` image becomes RGB or is kept, as the core decides; None if only the CPU can do it."""
    if not 1 <= channels <= MAX_CHANNELS or dtype == CMYK_DTYPE_CODE:
        return None
    color = ending.color
    if color == "auto":
        color = "RGB" if channels in (1, 3) or (channels <= 4 and dtype in COLOR_DTYPE_CODES) else "keep"
    if color == "RGB" and (channels > 4 or (channels == 4 and dtype == DTYPE_CODES["uint8"])):
        return None  # the file may say that it is CMYK
    fits = ending.mean is None or len(ending.mean) in (1, 3 if color == "RGB" else channels)
    return color if fits else None


def nearest_sources(size: int, resized: int, begin: int, count: int) -> npt.NDArray[np.int64]:
    """Which sample each of the resized ones is, without interpolation: added up as the core does, to the last bit."""
    scale = size / resized
    steps = np.full(begin + count, scale)
    steps[0] = scale * 0.5
    sources: npt.NDArray[np.int64] = np.minimum(np.cumsum(steps)[begin:].astype(np.int64), size - 1)
    return sources
