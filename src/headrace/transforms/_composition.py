# SPDX-License-Identifier: Apache-2.0
"""What a list of transforms holds beside plain ones: several views of a sample, and Python callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.transforms import _arguments as arguments
from headrace.transforms._color import Normalize
from headrace.transforms._transform import Operation, Transform

MAX_VIEWS = 65536


@dataclass(frozen=True)
class Views(Transform):
    """Make `n` augmented views of each sample, each with draws of its own: a batch is `[B, n, C, H, W]`.

    `Views` stands alone in its list, with all declarative transforms inside; Python callables may follow it.

        transform=[Views(2, [RandomResizedCrop(224), HorizontalFlip(), ColorJitter(0.4, 0.4), Normalize(mean, std)])]
    """

    n: int
    transforms: Iterable[Transform]

    op: ClassVar[str] = "views"

    def __post_init__(self) -> None:
        n = arguments.integer("Views: n", self.n, 1, MAX_VIEWS)
        if n == 1:
            raise ValueError("Views: n is 1; for one view give its transforms as the list itself")
        if isinstance(self.transforms, Transform) or callable(self.transforms):
            raise TypeError("Views: the second argument is a list of transforms: Views(2, [RandomResizedCrop(224)])")
        transforms = tuple(self.transforms)
        for item in transforms:
            if isinstance(item, Views):
                raise ValueError("Views: views of views are not possible; multiply the numbers")
            if not isinstance(item, Transform):
                raise TypeError(
                    f"Views: {item!r} is no declarative transform; Python callables follow the views: "
                    f"[Views({n}, […]), PerSample(fn)]"
                )
        check_order(transforms)
        self._set(n=n, transforms=transforms)

    def operations(self) -> tuple[Operation, ...]:
        return tuple(operation for item in self.transforms for operation in item.operations())


@dataclass(frozen=True)
class PerSample:
    """Call `fn` for each sample, after the declarative transforms.

    Transforms of torchvision, kornia or albumentations will do. They run in Python and hold the GIL while they do, and
    their randomness is their own affair. A bare callable in a list of transforms is taken for this.
    """

    fn: Callable[[Any], Any]

    op: ClassVar[str] = "per_sample"

    def __post_init__(self) -> None:
        check_callable("PerSample", self.fn)

    def to_json(self) -> dict[str, Any]:
        """Refuse: code is no JSON."""
        raise ValueError(no_json(self))


@dataclass(frozen=True)
class PerBatch:
    """Call `fn` for each batch, after all else: for what mixes samples, or is faster on many at once."""

    fn: Callable[[Any], Any]

    op: ClassVar[str] = "per_batch"

    def __post_init__(self) -> None:
        check_callable("PerBatch", self.fn)

    def to_json(self) -> dict[str, Any]:
        """Refuse: code is no JSON."""
        raise ValueError(no_json(self))


def check_callable(owner: str, fn: Any) -> None:
    if isinstance(fn, (Transform, PerSample, PerBatch)):
        raise TypeError(f"{owner}: {type(fn).__name__} is a transform of its own; put it into the list as it is")
    if isinstance(fn, type):
        raise TypeError(f"{owner}: {fn.__name__} is a class; write {fn.__name__}(…)")
    if not callable(fn):
        raise TypeError(f"{owner}: {fn!r} cannot be called")


def check_order(transforms: tuple[Transform, ...]) -> None:
    """Raise ValueError unless `Normalize`, if there is one, comes last and `Views` stands alone."""
    for position, item in enumerate(transforms):
        if isinstance(item, Views) and len(transforms) > 1:
            other = transforms[1 - position if position < 2 else 0]
            raise ValueError(f"Views stands alone in its list: move {type(other).__name__} into it")
        if isinstance(item, Normalize) and position != len(transforms) - 1:
            after = type(transforms[position + 1]).__name__
            raise ValueError(f"{after} comes after Normalize, which must be the last of the declarative transforms")


def callable_name(fn: Callable[[Any], Any]) -> str:
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{named.__module__}.{named.__qualname__}"


def no_json(item: PerSample | PerBatch) -> str:
    return (
        f"{type(item).__name__}({callable_name(item.fn)}) is code, which JSON cannot carry; "
        f"use declarative transforms, or call it on the batches that the loader gives"
    )
