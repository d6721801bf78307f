# SPDX-License-Identifier: Apache-2.0
"""`Views`, `PerSample` and `PerBatch`: several views of a sample, and Python callables in a list of transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform
from headrace.transforms._color import Normalize

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
        if isinstance(self.transforms, Transform) or callable(self.transforms):
            raise TypeError("Views: transforms must be a list, as in Views(2, [RandomResizedCrop(224)])")
        transforms = tuple(self.transforms)
        for item in transforms:
            if isinstance(item, Views):
                raise ValueError("Views: Views cannot be nested; multiply their n instead")
            if not isinstance(item, Transform):
                raise TypeError(
                    f"Views: transforms must be declarative; got {item!r}; put Python callables after the views: "
                    f"[Views({n}, [...]), PerSample(fn)]"
                )
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
    """Raise ValueError unless `Normalize` is last and `Views` is the only transform in its list."""
    for position, item in enumerate(transforms):
        if isinstance(item, Views) and len(transforms) > 1:
            other = transforms[1 - position if position < 2 else 0]
            raise ValueError(f"Views must be the only declarative transform: move {type(other).__name__} into it")
        if isinstance(item, Normalize) and position != len(transforms) - 1:
            after = type(transforms[position + 1]).__name__
            raise ValueError(f"Normalize must be the last declarative transform; found {after} after it")


def callable_name(fn: Callable[[Any], Any]) -> str:
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{named.__module__}.{named.__qualname__}"
