# SPDX-License-Identifier: Apache-2.0
"""From a list of transforms to what the loader runs: one compiled transform of images, one of masks, and callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace.transforms._boxes import B, map_boxes
from headrace.transforms._color import Normalize
from headrace.transforms._composition import PerBatch, PerSample, Views, callable_name, check_callable, check_order
from headrace.transforms._geometry import RandomResizedCrop, Resize
from headrace.transforms._transform import Operation, Transform

if TYPE_CHECKING:
    from headrace import _core

Item: TypeAlias = Transform | PerSample | PerBatch | Callable[[Any], Any]

DTYPES = ("uint8", "uint16", "float16", "float32")
LAYOUTS = ("CHW", "HWC")
COLORS = ("RGB", "keep")


@dataclass(frozen=True)
class Compiled:
    """A list of transforms, checked and ready to run. Immutable; any number of threads may use it at once."""

    transforms: tuple[Transform, ...]
    per_sample: tuple[Callable[[Any], Any], ...]
    per_batch: tuple[Callable[[Any], Any], ...]
    dtype: str | None
    layout: str
    color: str
    approximate_jpeg: bool
    views: int
    """How many views of each sample are made; 1 without `Views`."""
    image: _core.Transform = field(repr=False, compare=False)
    mask: _core.Transform = field(repr=False, compare=False)
    """The same geometry without interpolation, colour and normalisation."""

    def boxes(
        self,
        boxes: B,
        height: int,
        width: int,
        *,
        seed: int,
        epoch: int,
        sample: int,
        view: int = 0,
        min_area: float = 1.0,
    ) -> B:
        """Transform the boxes of an image of this size as the image is.

        They are clipped to what is left of the image. Those that have no area left, or less than `min_area` pixels
        of what comes out, are dropped, and their labels with them.
        """
        passes = self.image.passes(height, width, seed=seed, epoch=epoch, sample=sample, view=view)
        return map_boxes(boxes, passes, min_area)

    def to_json(self, *, callables: bool = False) -> list[dict[str, Any]]:
        """Return the transforms as JSON.

        Python callables are code, which JSON cannot carry: they are a ValueError, or with `callables=True` entries that
        name them for the reader and that `from_json` refuses.
        """
        code = [PerSample(fn) for fn in self.per_sample] + [PerBatch(fn) for fn in self.per_batch]
        named = [{"op": item.op, "callable": callable_name(item.fn)} if callables else item.to_json() for item in code]
        return [item.to_json() for item in self.transforms] + named

    def __reduce__(self) -> tuple[Any, ...]:
        code = [PerSample(fn) for fn in self.per_sample] + [PerBatch(fn) for fn in self.per_batch]
        return _rebuild, ((*self.transforms, *code), self.dtype, self.layout, self.color, self.approximate_jpeg)


def compile(  # noqa: A001
    transform: Sequence[Item] | Item | None,
    *,
    dtype: Any = None,
    layout: str = "CHW",
    color: str = "RGB",
    approximate_jpeg: bool = False,
) -> Compiled:
    """Check a list of transforms and make it ready to run.

    Args:
        transform: Declarative transforms, `Normalize` last among them, then Python callables; None for none.
        dtype: What comes out: "uint8", "uint16", "float16" or "float32" (on the 0–1 scale without `Normalize`). None
            leaves images as they are, or makes float32 of them where there is a `Normalize`.
        layout: "CHW" or "HWC".
        color: "RGB" makes three channels of every image, "keep" leaves them as they are stored.
        approximate_jpeg: Let a JPEG that is made much smaller be decoded at a fraction of its size, which is faster and
            not the same picture.

    """
    declared, per_sample, per_batch = _split(_listed(transform))
    views = next((item for item in declared if isinstance(item, Views)), None)
    inner = tuple(views.transforms) if views else declared
    normalize = next((item for item in inner if isinstance(item, Normalize)), None)
    named = _dtype(dtype, normalize)
    for name, value, choices in (("layout", layout, LAYOUTS), ("color", color, COLORS)):
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; possible are {' and '.join(map(repr, choices))}")

    from headrace import _core  # noqa: PLC0415  # so that transforms can be written down where nothing is run

    mean, std = (list(normalize.mean), list(normalize.std)) if normalize else (None, None)  # type: ignore[arg-type]
    image = _core.Transform(
        _operations(inner),
        dtype=named,
        layout=layout,
        mean=mean,
        std=std,
        color=color,
        mask=False,
        approximate_jpeg=approximate_jpeg,
    )
    mask = _core.Transform(
        _operations(map(_without_interpolation, inner)),
        dtype=None,
        layout=layout,
        mean=None,
        std=None,
        color="keep",
        mask=True,
    )
    n_views = views.n if views else 1
    return Compiled(declared, per_sample, per_batch, named, layout, color, approximate_jpeg, n_views, image, mask)


def _operations(transforms: Iterable[Transform]) -> list[Operation]:
    return [operation for item in transforms for operation in item.operations()]


def _without_interpolation(item: Transform) -> Transform:
    """The same operation with the same draws for a mask, whose levels are names that must not be mixed."""
    return replace(item, interpolation="nearest") if isinstance(item, (Resize, RandomResizedCrop)) else item


def _rebuild(transforms: tuple[Item, ...], dtype: str | None, layout: str, color: str, approximate: bool) -> Compiled:
    return compile(transforms, dtype=dtype, layout=layout, color=color, approximate_jpeg=approximate)


def _listed(transform: Sequence[Item] | Item | None) -> tuple[Item, ...]:
    if transform is None:
        return ()
    if isinstance(transform, (Transform, PerSample, PerBatch)) or callable(transform):
        return (transform,)
    return tuple(transform)


def _split(items: tuple[Item, ...]) -> tuple[tuple[Transform, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Sort the items by where they run and raise for those that stand in the wrong place."""
    declared: list[Transform] = []
    per_sample: list[Callable[[Any], Any]] = []
    per_batch: list[Callable[[Any], Any]] = []
    for position, item in enumerate(items):
        if isinstance(item, Transform):
            if per_sample or per_batch:
                raise ValueError(
                    f"{type(item).__name__} (position {position}) comes after a Python callable; declarative "
                    f"transforms go first: they run in C++, before Python sees the sample"
                )
            declared.append(item)
        elif isinstance(item, PerBatch):
            per_batch.append(item.fn)
        else:
            fn = item.fn if isinstance(item, PerSample) else item
            check_callable(f"transform {position}", fn)
            if per_batch:
                raise ValueError(f"{callable_name(fn)} (position {position}) is per sample and comes after a PerBatch")
            per_sample.append(fn)
    check_order(tuple(declared))
    return tuple(declared), tuple(per_sample), tuple(per_batch)


def _dtype(dtype: Any, normalize: Normalize | None) -> str | None:
    if dtype is None:
        return None
    try:
        name = str(dtype).removeprefix("torch.") if str(dtype).startswith("torch.") else np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; possible are {', '.join(map(repr, DTYPES))}, or None")
    if normalize and not name.startswith("float"):
        raise ValueError(f"dtype is {name!r}, but what Normalize makes is no integer; use 'float32' or 'float16'")
    return name
