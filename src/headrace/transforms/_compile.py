# SPDX-License-Identifier: Apache-2.0
"""Compile a list of transforms: one compiled transform for images, one for masks, and the Python callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace.formats import MAX_PIXELS
from headrace.transforms._base import Operation, Transform
from headrace.transforms._color import Normalize
from headrace.transforms._composition import (
    BATCH_STAGE,
    PerBatch,
    PerSample,
    Views,
    callable_name,
    check_callable,
    check_order,
)
from headrace.transforms._multicrop import MultiCrop
from headrace.transforms.boxes import B, BoxFilter
from headrace.transforms.detection._mosaic import PLACED, Mosaic
from headrace.transforms.detection.canvas import N_TILES, MosaicTiles
from headrace.transforms.detection.targets import Motion, Pairs
from headrace.transforms.mixing import BatchTransform

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace import _core

Item: TypeAlias = Transform | PerSample | PerBatch | Callable[[Any], Any]

DTYPES = ("uint8", "uint16", "float16", "float32")
LAYOUTS = ("CHW", "HWC")
COLORS = ("auto", "RGB", "keep")


@dataclass(frozen=True)
class ViewGroup:
    """`n` views of a sample that are made by the same transforms."""

    n: int
    image: _core.Transform
    mask: _core.Transform
    needs_boxes: bool = False
    """Whether a crop depends on the boxes of its sample."""
    flip_pairs: Pairs | None = None
    """Keypoints that flips exchange, if the transforms say so."""


@dataclass(frozen=True)
class Compiled:
    """A list of transforms, checked and ready to run. Immutable and thread-safe."""

    transforms: tuple[Transform, ...]
    per_sample: tuple[Callable[[Any], Any], ...]
    per_batch: tuple[Callable[[Any], Any], ...]
    dtype: str | None
    layout: str
    color: str
    approximate_jpeg: bool
    max_pixels: int
    groups: tuple[ViewGroup, ...] = field(repr=False, compare=False)
    """Views that are made alike; one group without `MultiCrop`."""
    mixes: tuple[BatchTransform, ...]
    tiles: MosaicTiles | None = field(default=None, repr=False, compare=False)
    """How the images of a `Mosaic` are made; None without one."""

    @property
    def needs_boxes(self) -> bool:
        """Whether pixels depend on the boxes of their sample."""
        return any(group.needs_boxes for group in self.groups)

    @property
    def views(self) -> int:
        """Views per sample; 1 without `Views` and `MultiCrop`."""
        return sum(group.n for group in self.groups)

    @property
    def image(self) -> _core.Transform:
        """What is done to images, or to the first view of them."""
        return self.groups[0].image

    @property
    def mask(self) -> _core.Transform:
        """The same geometry without interpolation, color changes and normalization."""
        return self.groups[0].mask

    def core_groups(self, field_type: str) -> list[tuple[_core.Transform, int]]:
        """Return the transform and the number of views of each group, for the core; `field_type`: image or mask."""
        return [(group.mask if field_type == "mask" else group.image, group.n) for group in self.groups]

    def named_groups(self, fields: Mapping[str, str]) -> dict[str, tuple[str, _core.Transform, int]]:
        """Return (field, transform, views) of each array of a prepared batch by its name; `fields` has their types."""
        many = len(self.groups) > 1
        return {
            f"{name}/{g}" if many else name: (name, *group)
            for name, kind in fields.items()
            for g, group in enumerate(self.core_groups(kind))
        }

    def group_of(self, view: int) -> ViewGroup:
        """Return the group that a view belongs to. Views are numbered through all groups."""
        for group in self.groups[:-1]:
            if view < group.n:
                return group
            view -= group.n
        return self.groups[-1]

    def boxes_kept(
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
        min_visibility: float = 0.0,
    ) -> tuple[B, npt.NDArray[np.bool_]]:
        """Apply the geometry of an image of this size to its boxes. Return the boxes and a mask of those kept.

        Boxes are clipped to the visible part. Boxes with no area left, less than `min_area` output pixels, or less than
        the share `min_visibility` of the moved box are dropped together with their labels.
        """
        motion = self.motion(height, width, seed=seed, epoch=epoch, sample=sample, view=view, corners=boxes.xyxy)
        moved: tuple[B, npt.NDArray[np.bool_]] = motion.move_boxes(boxes, BoxFilter(min_area, min_visibility))
        return moved

    def motion(
        self,
        height: int,
        width: int,
        *,
        seed: int,
        epoch: int,
        sample: int,
        view: int = 0,
        corners: Any = None,
    ) -> Motion:
        """Return what a view of an image of this size does to positions in it. `corners` are those of its boxes."""
        group = self.group_of(view)
        key = {"seed": seed, "epoch": epoch, "sample": sample, "view": view}
        pairs = group.flip_pairs
        if not group.needs_boxes or corners is None:
            return Motion(group.image.passes(height, width, **key), flip_pairs=pairs)
        given = np.ascontiguousarray(corners, np.float32).reshape(-1, 4)
        left = np.frombuffer(group.image.boxes_left(height, width, given, **key), np.bool_)
        return Motion(group.image.passes(height, width, **key, boxes=given), left, pairs)

    def motions(self, sizes: Sequence[tuple[int, int]], key: Mapping[str, int], corners: Sequence[Any]) -> list[Motion]:
        """Return what a view does to positions in each image of a sample, given their heights and widths, and boxes.

        A sample has one image, or those of its mosaic. `key` is what its draws depend on.
        """
        if self.tiles is None:
            return [self.motion(*sizes[0], **key, corners=corners[0])]
        pairs = self.groups[0].flip_pairs
        placed = zip(self.tiles.placed, sizes, strict=False)
        return [Motion(tile.passes(*size, **key), flip_pairs=pairs) for tile, size in placed]

    def to_json(self, *, callables: bool = False) -> list[dict[str, Any]]:
        """Return the transforms as JSON.

        Python callables raise ValueError, because JSON cannot hold code. With `callables=True` they become entries that
        name them for a reader and that `from_json` refuses.
        """
        named = [
            {"op": item.op, "callable": callable_name(item.fn)} if callables else item.to_json()
            for item in self._code()
        ]
        return [item.to_json() for item in self.transforms] + named

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name: getattr(self, name) for name in ("dtype", "layout", "color", "approximate_jpeg", "max_pixels")}
        return _rebuild, ((*self.transforms, *self._code()), options)

    def _code(self) -> list[PerSample | PerBatch]:
        return [*map(PerSample, self.per_sample), *map(PerBatch, self.per_batch)]


def compile(  # noqa: A001
    transform: Sequence[Item] | Item | None,
    *,
    dtype: Any = None,
    layout: str = "CHW",
    color: str = "auto",
    approximate_jpeg: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> Compiled:
    """Check a list of transforms and compile it.

    Args:
        transform: Declarative transforms with `Normalize` last, then Python callables. None means no transform.
        dtype: Output dtype: "uint8", "uint16", "float16" or "float32" (on the 0–1 scale without `Normalize`). None
            keeps the dtype of the images, or means float32 with `Normalize`.
        layout: "CHW" or "HWC".
        color: "auto" makes three channels of gray, RGB, RGBA and CMYK images and leaves others as they are stored;
            "RGB" makes three channels of every image; "keep" leaves all as they are stored.
        approximate_jpeg: Let the decoder scale down a JPEG that will be made much smaller. Faster; pixels differ.
        max_pixels: Raise if more pixels than this would be decoded from an image or made of it.

    """
    declared, per_sample, per_batch = _split(listed(transform))
    mixes = tuple(item for item in declared if isinstance(item, BatchTransform))
    viewed = _views(tuple(item for item in declared if item.stage < BATCH_STAGE))
    normalized = any(isinstance(item, Normalize) for _, inner in viewed for item in inner)
    named = _dtype(dtype, normalized=normalized)
    _check_mixed_dtype(mixes, named or ("float32" if normalized else None))
    for name, value, choices in (("layout", layout, LAYOUTS), ("color", color, COLORS)):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")

    shared: dict[str, Any] = {"layout": layout, "color": color, "max_pixels": max_pixels}
    groups = tuple(_group(n, inner, dtype=named, approximate_jpeg=approximate_jpeg, **shared) for n, inner in viewed)
    tiles = _tiles(declared, approximate_jpeg=approximate_jpeg, **shared)
    made = (named, layout, color, approximate_jpeg, max_pixels, groups, mixes, tiles)
    return Compiled(declared, per_sample, per_batch, *made)


def _views(declared: tuple[Transform, ...]) -> list[tuple[int, tuple[Transform, ...]]]:
    """Return the number of views and the transforms of each group."""
    first = declared[0] if declared else None
    if isinstance(first, Views):
        return [(first.n, tuple(first.transforms))]
    if isinstance(first, MultiCrop):
        return [(view.n, tuple(view.transforms)) for view in first.views]
    return [(1, declared)]


def _group(
    n: int, inner: tuple[Transform, ...], *, dtype: str | None, approximate_jpeg: bool, **shared: Any
) -> ViewGroup:
    from headrace import _core  # noqa: PLC0415  # transforms can be described without loading the extension

    normalize = next((item for item in inner if isinstance(item, Normalize)), None)
    mean, std = (list(normalize.mean), list(normalize.std)) if normalize else (None, None)  # type: ignore[arg-type]
    own = {"dtype": dtype, "mean": mean, "std": std, "mask": False, "approximate_jpeg": approximate_jpeg}
    image = _core.Transform(_operations(inner), **{**shared, **own})
    plain = {"dtype": None, "mean": None, "std": None, "mask": True, "color": "keep"}
    mask = _core.Transform(_operations(item.for_mask() for item in inner), **{**shared, **plain})
    return ViewGroup(n, image, mask, any(name == "iou_crop" for name, _ in _operations(inner)), _flip_pairs(inner))


def _tiles(
    declared: tuple[Transform, ...], *, layout: str, color: str, max_pixels: int, approximate_jpeg: bool
) -> MosaicTiles | None:
    """Compile the parts of a `Mosaic`, which is the first transform if there is one."""
    from headrace import _core  # noqa: PLC0415  # transforms can be described without loading the extension

    del layout  # that of the batch: a tile is always HWC
    first = declared[0] if declared else None
    if not isinstance(first, Mosaic):
        return None
    shared: dict[str, Any] = {"dtype": None, "layout": "HWC", "mean": None, "std": None, "max_pixels": max_pixels}
    after = _operations(item for item in declared[1:] if item.stage < BATCH_STAGE)

    def part(number: int, color: str, *following: Operation, mask: bool = False) -> _core.Transform:
        operations = [*(first.for_mask() if mask else first).part(number), *following]
        return _core.Transform(operations, color=color, mask=mask, approximate_jpeg=approximate_jpeg, **shared)

    return MosaicTiles(
        first,
        tuple(part(tile, color) for tile in range(N_TILES)),
        tuple(part(tile, "keep", mask=True) for tile in range(N_TILES)),
        tuple(part(PLACED + tile, color, *after) for tile in range(N_TILES)),
    )


def _flip_pairs(inner: tuple[Transform, ...]) -> Pairs | None:
    """Return the pairs that flips name, also those inside other transforms."""
    found: set[Pairs] = set()
    waiting = list(inner)
    for item in waiting:
        waiting += [each for each in getattr(item, "transforms", ()) if isinstance(each, Transform)]
        pairs = getattr(item, "flip_pairs", None)
        if pairs is not None:
            found.add(pairs)
    if len(found) > 1:
        raise ValueError(f"all flips must name the same flip_pairs; got {sorted(found)}")
    return found.pop() if found else None


def _check_mixed_dtype(mixes: tuple[BatchTransform, ...], made: str | None) -> None:
    for item in mixes:
        if item.options().mixup_alpha and (made is None or not made.startswith("float")):
            raise ValueError(
                f"{type(item).__name__} needs float images: put Normalize before it, or set dtype='float32'"
            )


def _operations(transforms: Iterable[Transform]) -> list[Operation]:
    return [operation for item in transforms for operation in item.operations()]


def _rebuild(transforms: tuple[Item, ...], options: dict[str, Any]) -> Compiled:
    return compile(transforms, **options)


def listed(transform: Sequence[Item] | Item | None) -> tuple[Item, ...]:
    """Return the items of a list of transforms, of one transform, or of None."""
    if transform is None:
        return ()
    held = getattr(transform, "transforms", None)
    if isinstance(held, tuple) and not isinstance(transform, Transform):  # Compose
        return held
    if isinstance(transform, (Transform, PerSample, PerBatch)) or callable(transform):
        return (transform,)
    return tuple(transform)


def _split(items: tuple[Item, ...]) -> tuple[tuple[Transform, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Split the items into declarative, per-sample and per-batch ones. Raise if they are out of order."""
    declared: list[Transform] = []
    per_sample: list[Callable[[Any], Any]] = []
    per_batch: list[Callable[[Any], Any]] = []
    for position, item in enumerate(items):
        if isinstance(item, Transform):
            if per_sample or per_batch:
                raise ValueError(
                    f"declarative transforms must come before Python callables; found {type(item).__name__} "
                    f"at position {position} after one"
                )
            declared.append(item)
        elif isinstance(item, PerBatch):
            per_batch.append(item.fn)
        else:
            fn = item.fn if isinstance(item, PerSample) else item
            check_callable(f"transform {position}", fn)
            if per_batch:
                raise ValueError(
                    f"per-sample callables must come before PerBatch; found {callable_name(fn)} at {position}"
                )
            per_sample.append(fn)
    check_order(tuple(declared))
    return tuple(declared), tuple(per_sample), tuple(per_batch)


def _dtype(dtype: Any, *, normalized: bool) -> str | None:
    if dtype is None:
        return None
    try:
        name = str(dtype).removeprefix("torch.") if str(dtype).startswith("torch.") else np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(map(repr, DTYPES))} or None; got {dtype!r}")
    if normalized and not name.startswith("float"):
        raise ValueError(f"dtype must be 'float32' or 'float16' with Normalize; got {name!r}")
    return name
