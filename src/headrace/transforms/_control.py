# SPDX-License-Identifier: Apache-2.0
"""Transforms that run other transforms: sometimes, one of several, or all in a random order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform
from headrace.transforms._color import Grayscale

MAX_WEIGHT = 1e9
T = TypeVar("T", bound="Nested")


@dataclass(frozen=True)
class Nested(Transform):
    """Base class of transforms that hold others in `transforms`. They may be nested, up to eight levels deep."""

    transforms: Iterable[Transform]

    def _checked(self, name: str) -> tuple[Transform, ...]:
        if isinstance(self.transforms, Transform) or callable(self.transforms):
            raise TypeError(f"{name}: transforms must be a list, as in {name}([HorizontalFlip()])")
        transforms = tuple(self.transforms)
        if not transforms:
            raise ValueError(f"{name}: transforms must have at least one transform")
        for item in transforms:
            if not isinstance(item, Transform):
                raise TypeError(f"{name}: transforms must be declarative; got {item!r}")
            if item.stage or not item.nests:
                raise ValueError(
                    f"{name}: {type(item).__name__} must not be inside {name}; put it directly into the list"
                )
        return transforms

    def for_mask(self) -> Self:
        """Return the same choices of the transforms as they are for masks."""
        return replace(self, transforms=tuple(item.for_mask() for item in self.transforms))


@dataclass(frozen=True)
class RandomApply(Nested):
    """Apply all transforms in order with probability `p`, else none. As torchvision's `RandomApply`.

    RandomApply([ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8)
    """

    p: float = 0.5

    op: ClassVar[str] = "random_apply"

    def __post_init__(self) -> None:
        transforms = self._checked("RandomApply")
        p = arguments.probability("RandomApply: p", self.p)
        if p < 1:
            _refuse_one_channel("RandomApply", transforms)
        self._set(transforms=transforms, p=p)

    def operations(self) -> tuple[Operation, ...]:
        body = flattened(self.transforms)
        return (("apply", (self.p, len(body))), *body)


@dataclass(frozen=True)
class RandomChoice(Nested):
    """Apply one of the transforms. As torchvision's `RandomChoice`.

    Args:
        transforms: To choose among.
        p: A weight for each, which need not add up to 1. None: all have the same probability.

    """

    p: Sequence[float] | None = None

    op: ClassVar[str] = "random_choice"

    def __post_init__(self) -> None:
        transforms = self._checked("RandomChoice")
        _refuse_one_channel("RandomChoice", transforms)
        self._set(transforms=transforms, p=_weights("RandomChoice: p", self.p, len(transforms)))

    def operations(self) -> tuple[Operation, ...]:
        transforms = tuple(self.transforms)
        return choice([item.operations() for item in transforms], self.p or (1,) * len(transforms))


@dataclass(frozen=True)
class OneOf(Nested):
    """With probability `p` apply one of the transforms, all equally probable; else none. As albumentations' `OneOf`.

    Different from albumentations: the probabilities of the transforms inside are theirs alone, not weights. Give
    weights with `RandomChoice(transforms, p=weights)`.
    """

    p: float = 0.5

    op: ClassVar[str] = "one_of"

    def __post_init__(self) -> None:
        transforms = self._checked("OneOf")
        _refuse_one_channel("OneOf", transforms)
        self._set(transforms=transforms, p=arguments.probability("OneOf: p", self.p))

    def operations(self) -> tuple[Operation, ...]:
        transforms = tuple(self.transforms)
        body = choice([item.operations() for item in transforms], (1,) * len(transforms))
        return (("apply", (self.p, len(body))), *body)


@dataclass(frozen=True)
class RandomOrder(Nested):
    """Apply all transforms in a random order. As torchvision's `RandomOrder`. At most 64 transforms."""

    op: ClassVar[str] = "random_order"

    def __post_init__(self) -> None:
        transforms = self._checked("RandomOrder")
        if len(transforms) > 64:
            raise ValueError(f"RandomOrder: transforms must have at most 64 entries; got {len(transforms)}")
        self._set(transforms=transforms)

    def operations(self) -> tuple[Operation, ...]:
        body = branches([item.operations() for item in self.transforms], (1,) * len(tuple(self.transforms)))
        return (("order", (len(body),)), *body)


def flattened(transforms: Iterable[Transform]) -> tuple[Operation, ...]:
    return tuple(operation for item in transforms for operation in item.operations())


def branches(bodies: Sequence[Sequence[Operation]], weights: Sequence[float]) -> tuple[Operation, ...]:
    """Return the operations of several branches, as the body of `choice` or `order`."""
    return tuple(
        operation
        for body, weight in zip(bodies, weights, strict=True)
        for operation in (("branch", (float(weight), len(body))), *body)
    )


def choice(bodies: Sequence[Sequence[Operation]], weights: Sequence[float]) -> tuple[Operation, ...]:
    """Return the operations that run one of the bodies."""
    body = branches(bodies, weights)
    return (("choice", (len(body),)), *body)


def _weights(name: str, value: Sequence[float] | None, n: int) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not arguments.is_sequence(value) or len(value) != n:
        raise ValueError(f"{name} must have one weight for each of the {n} transforms; got {value!r}")
    weights = tuple(arguments.number(name, weight, 0, MAX_WEIGHT) for weight in value)
    if not any(weights):
        raise ValueError(f"{name} must have a weight > 0; got {value!r}")
    return weights


def _refuse_one_channel(name: str, transforms: Iterable[Transform]) -> None:
    def found(items: Iterable[Transform]) -> bool:
        return any(
            found(item.transforms) if isinstance(item, Nested) else isinstance(item, Grayscale) and item.channels == 1
            for item in items
        )

    if found(transforms):
        raise ValueError(f"{name}: some images would have 1 channel and some 3; use Grayscale(channels=3)")
