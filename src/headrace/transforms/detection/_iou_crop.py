# SPDX-License-Identifier: Apache-2.0
"""`RandomIoUCrop`: a crop that depends on the boxes of its sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform

_MAX_OPTIONS = 10
_MAX_TRIALS = 1000
_OVERLAPS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True)
class RandomIoUCrop(Transform):
    """Crop so that the result overlaps at least one box enough, as SSD trains. As torchvision's `RandomIoUCrop`.

    Boxes whose centers are outside of the crop are removed, with all that belongs to them. The dataset needs exactly
    one field of boxes, which need not be loaded. It comes before rotations and other warps, at most once in a list.

    Args:
        min_scale: Minimum width and height of the crop, as a share of the image's.
        max_scale: Maximum width and height.
        min_aspect_ratio: Minimum width / height of the crop.
        max_aspect_ratio: Maximum width / height.
        sampler_options: Overlaps (intersection over union) to choose from, at most 10; 1 or more leaves the image as it
            is. None means 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1.
        trials: Crops that are tried before another overlap is chosen.

    Different from torchvision: an image without boxes is left as it is, and so is one for which 50 choices of an
    overlap have led to nothing; torchvision continues until it chooses 1.

    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    op: ClassVar[str] = "random_iou_crop"

    def __post_init__(self) -> None:
        name = type(self).__name__
        scale = _ordered(name, "scale", self.min_scale, self.max_scale, 1e-3, 1)
        ratio = _ordered(name, "aspect_ratio", self.min_aspect_ratio, self.max_aspect_ratio, 1e-3, 1e3)
        options = self.sampler_options
        if options is not None:
            if not arguments.is_sequence(options) or not 1 <= len(options) <= _MAX_OPTIONS:
                raise ValueError(f"{name}: sampler_options must be 1 to {_MAX_OPTIONS} overlaps; got {options!r}")
            options = tuple(arguments.number(f"{name}: sampler_options", each, 0, 1e6) for each in options)
        trials = arguments.integer(f"{name}: trials", self.trials, 1, _MAX_TRIALS)
        self._set(**scale, **ratio, sampler_options=options, trials=trials)

    def operations(self) -> tuple[Operation, ...]:
        options = _OVERLAPS if self.sampler_options is None else tuple(self.sampler_options)
        limits = (self.min_scale, self.max_scale, self.min_aspect_ratio, self.max_aspect_ratio)
        return (("iou_crop", (*limits, self.trials, len(options), *options)),)


def _ordered(owner: str, what: str, least: Any, most: Any, low: float, high: float) -> dict[str, float]:
    """Return the checked ends of a range by their names."""
    ends = {
        name: arguments.number(f"{owner}: {name}", each, low, high)
        for name, each in ((f"min_{what}", least), (f"max_{what}", most))
    }
    if least > most:
        raise ValueError(f"{owner}: min_{what} must be at most max_{what}; got {least} and {most}")
    return ends
