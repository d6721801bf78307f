# SPDX-License-Identifier: Apache-2.0
"""`Views`, `PerSample` and `PerBatch`: several views of a sample, and Python callables in a list of transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform

MAX_VIEWS = 65536


@dataclass(frozen=True)
class Views(Transform):
    """Make `n` augmented views of each sample, with independent random draws: a batch is `[B, n, C, H, W]`.

    `Views` must be the only declarative transform in its list and holds all others. Python callables may follow it.

        transform=[Views(2, [RandomResizedCrop(224), HorizontalFlip(), ColorJitter(0.4, 0.4), Normalize(mean, std)])]
    """

    n: int
    transforms: Iterable[Transform]

    op: ClassVar[str] = "views"
    nests: ClassVar[bool] = False

    def __post_init__(self) -> None:
        n = arguments.integer("Views: n", self.n, 1, MAX_VIEWS)
        if n == 1:
            raise ValueError("Views: n must be at least 2; got 1; for one view pass its transforms directly")
        transforms = view_transforms("Views", self.transforms)
        check_order(transforms)
        self._set(n=n, transforms=transforms)

    def operations(self) -> tuple[Operation, ...]:
        return tuple(operation for item in self.transforms for operation in item.operations())


@dataclass(frozen=True)
class _PythonCallable:
    fn: Callable[[Any], Any]

    op: ClassVar[str]

    def __post_init__(self) -> None:
        check_callable(type(self).__name__, self.fn)

    def to_json(self) -> dict[str, Any]:
        """Raise ValueError: JSON cannot hold code."""
        raise ValueError(
            f"{type(self).__name__}({callable_name(self.fn)}) is code, which JSON cannot hold; "
            f"use declarative transforms, or call it on the batches that the loader returns"
        )


@dataclass(frozen=True)
class PerSample(_PythonCallable):
    """Call `fn` for each sample, after the declarative transforms.

    Works with transforms of torchvision, kornia or albumentations. They run in Python and hold the GIL, and Headrace
    does not control their random numbers. A bare callable in a list of transforms means `PerSample(callable)`.
    """

    op: ClassVar[str] = "per_sample"


@dataclass(frozen=True)
class PerBatch(_PythonCallable):
    """Call `fn` for each batch, after everything else. Use it to mix samples or to process many at once."""

    op: ClassVar[str] = "per_batch"


def check_callable(owner: str, fn: Any) -> None:
    if isinstance(fn, (Transform, PerSample, PerBatch)):
        raise TypeError(f"{owner}: {type(fn).__name__} is already a transform; put it into the list directly")
    if isinstance(fn, type):
        raise TypeError(f"{owner}: {fn.__name__} is a class; pass an instance, {fn.__name__}(...)")
    if not callable(fn):
        raise TypeError(f"{owner}: must be callable; got {fn!r}")


def check_order(transforms: tuple[Transform, ...]) -> None:
    """Raise ValueError unless transforms are in the order of their stages and `Views` has its list for itself."""
    for position, item in enumerate(transforms):
        name = type(item).__name__
        if item.op in MANY_VIEWS and len(transforms) > 1:
            other = transforms[1 - position if position < 2 else 0]
            if other.stage == BATCH_STAGE:
                raise ValueError(f"{type(other).__name__} mixes samples of one view; it cannot be used with {name}")
            raise ValueError(f"{name} must be the only declarative transform: move {type(other).__name__} into it")
        if position + 1 < len(transforms):
            after = transforms[position + 1]
            if after.op == "mosaic":
                raise ValueError(f"Mosaic must be the first transform; found {name} before it")
            if after.stage < item.stage or after.stage == item.stage == 1:  # one Normalize
                raise ValueError(f"{name} must be the last {_LAST[item.stage]}; found {type(after).__name__} after it")


BATCH_STAGE = 3
MANY_VIEWS = ("views", "multi_crop")
"""The transforms that make several views of a sample, by their names in JSON."""
_LAST = {
    1: "declarative transform",
    2: "declarative transform but those of batches",
    BATCH_STAGE: "declarative transform, because it works on batches",
}


def view_transforms(owner: str, given: Any, *, nested: bool = False) -> tuple[Transform, ...]:
    """Return the transforms of one view; `nested` allows those that make several views, and those of batches."""
    if isinstance(given, Transform) or callable(given):
        raise TypeError(f"{owner}: transforms must be a list, as in {_EXAMPLES[owner]}")
    transforms = tuple(given)
    for item in transforms:
        if not isinstance(item, Transform):
            raise TypeError(
                f"{owner}: transforms must be declarative; got {item!r}; put Python callables after the views: "
                f"[{owner}(...), PerSample(fn)]"
            )
        if nested:
            continue
        if item.op in MANY_VIEWS:
            raise ValueError(f"{owner}: {type(item).__name__} cannot be nested; multiply their n instead")
        if item.stage == BATCH_STAGE:
            raise ValueError(f"{owner}: {type(item).__name__} mixes batches, not views")
        if item.op == "mosaic":
            raise ValueError(f"{owner}: Mosaic cannot be used with several views of a sample")
    return transforms


_EXAMPLES = {
    "Views": "Views(2, [RandomResizedCrop(224)])",
    "View": "View(2, [RandomResizedCrop(224)])",
    "Compose": "Compose([RandomResizedCrop(224)])",
}


def callable_name(fn: Callable[[Any], Any]) -> str:
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{named.__module__}.{named.__qualname__}"
