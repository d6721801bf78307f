# SPDX-License-Identifier: Apache-2.0
"""What a device has to do for a batch: which part of which image, how it is resized, and where it goes.

The draws are the core's own, asked for sample by sample, so a crop or a flip is that of the CPU. What the device has no
way to do, as another format or a crop that sticks out of its image, is left to the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.errors import TransformError
from headrace.loader._pixels import Rows
from headrace.records._schema import DTYPE_NAMES, FORMAT_CODES, FORMAT_NAMES
from headrace.transforms import Compiled, Normalize, Views

Pair: TypeAlias = tuple[int, int]
Region: TypeAlias = tuple[int, int, int, int]


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


@dataclass(frozen=True, slots=True)
class Job:
    """One view of one image."""

    position: int
    place: int
    """Among all views of the batch: position · views + view."""
    corner: Pair
    """The first row and column of the part of the image that is cut out."""
    window: Window
    upside_down: bool
    mirrored: bool
    shape: tuple[int, int, int]
    """Of what comes out: channels, height, width."""
    stored: str
    """The dtype of the image in the file."""
    format: str

    @property
    def resizes(self) -> bool:
        return self.window.size != self.window.resized


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """A field of a batch: what the device does of it, and the positions that are left to the CPU."""

    name: str
    ending: Ending
    columns: Mapping[str, npt.NDArray[Any]]
    jobs: tuple[Job, ...]
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
) -> FieldPlan:
    """Work out the jobs of one field for the samples of a batch; images in other than `formats` are left to the CPU."""
    codes = {FORMAT_CODES[form] for form in formats}
    jobs: list[Job] = []
    rest: list[int] = []
    listed = {part: columns[part].tolist() for part in ("format", "height", "width", "channels", "dtype")}
    for position, row in enumerate(rows.tolist()):
        image = {part: values[position] for part, values in listed.items()}
        made = list(_views(ending, image, row, position, key, views)) if image["format"] in codes else [None]
        if all(job is not None for job in made):
            jobs.extend(job for job in made if job is not None)
        else:
            rest.append(position)
    return FieldPlan(name, ending, columns, tuple(jobs), np.array(rest, np.int64))


def _views(
    ending: Ending, image: Mapping[str, int], row: int, position: int, key: Key, views: int
) -> Iterator[Job | None]:
    stored = DTYPE_NAMES.get(image["dtype"])
    channels = _channels(ending, image["channels"])
    for view in range(views):
        try:
            passes = ending.transform.passes(
                image["height"], image["width"], seed=key.seed, epoch=key.epoch, sample=row, view=view
            )
        except (TransformError, ValueError):  # the CPU tells of it, as it always does
            passes = []
        if len(passes) != 1 or channels is None or stored is None or not _can_do(passes[0], mask=ending.mask):
            yield None
            continue
        across, down = passes[0]["columns"], passes[0]["rows"]
        yield Job(
            position=position,
            place=position * views + view,
            corner=(down["start"], across["start"]),
            window=Window(
                (down["size"], across["size"]),
                (down["resized"], across["resized"]),
                (-down["offset"], -across["offset"]),
                (down["canvas"], across["canvas"]),
            ),
            upside_down=down["flipped"],
            mirrored=across["flipped"],
            shape=(channels, down["canvas"], across["canvas"]),
            stored=stored,
            format=FORMAT_NAMES[image["format"]],
        )


def _channels(ending: Ending, stored: int) -> int | None:
    """How many come out; None if that cannot be."""
    if ending.color == "RGB" and stored > 4:
        return None
    channels = 3 if ending.color == "RGB" else stored
    return channels if ending.mean is None or len(ending.mean) in (1, channels) else None


def _can_do(step: Mapping[str, Any], *, mask: bool) -> bool:
    """No border, no colours, and a filter that the device has."""
    axes = step["rows"], step["columns"]
    if step["colors"] or any(axis["offset"] > 0 or axis["canvas"] - axis["offset"] > axis["resized"] for axis in axes):
        return False
    resizes = any(axis["size"] != axis["resized"] for axis in axes)
    return mask or not resizes or (step["filter"] == "bilinear" and step["antialias"])


def needed_range(size: int, resized: int, begin: int, extent: int) -> tuple[int, int]:
    """The first sample and the one after the last that a bilinear resize with antialias looks at."""
    scale = size / resized
    support = max(scale, 1.0)
    first, last = (begin + 0.5) * scale, (begin + extent - 0.5) * scale
    return _first_sample(first - support, size), max(
        min(int(last + support + 0.5), size), _first_sample(last - support, size) + 1
    )


def _first_sample(edge: float, size: int) -> int:
    return min(max(int(edge + 0.5), 0), size - 1)


def nearest_sources(size: int, resized: int, begin: int, count: int) -> npt.NDArray[np.int64]:
    """Which sample each of the resized ones is, without interpolation: added up as the core does, to the last bit."""
    scale = size / resized
    steps = np.full(begin + count, scale)
    steps[0] = scale * 0.5
    sources: npt.NDArray[np.int64] = np.minimum(np.cumsum(steps)[begin:].astype(np.int64), size - 1)
    return sources
