# SPDX-License-Identifier: Apache-2.0
"""AugMix: the image mixed with several randomly augmented versions of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform
from headrace.transforms._control import branches, choice
from headrace.transforms.policies._learned import INTERPOLATIONS, Space
from headrace.transforms.policies._steps import checked_fill, filter_and_fill, whole

_NAMES = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Posterize", "Solarize", "AutoContrast", "Equalize")
_ALL_NAMES = (*_NAMES, "Brightness", "Color", "Contrast", "Sharpness")
_MAX_STEPS = 14  # of all chains together: a step may need a pass over the pixels, of which there are 16
_RANDOM_DEPTH = 3


@dataclass(frozen=True)
class AugMix(Transform):
    """Mix the image with `mixture_width` chains of randomly chosen operations. As torchvision's `AugMix`.

    Args:
        severity: 1 to 10: magnitudes are drawn from the lowest `severity` of ten.
        mixture_width: Number of chains.
        chain_depth: Operations per chain; -1 draws 1 to 3 for each. Width times depth is at most 14.
        alpha: Of the Dirichlet distributions of the weights, 0.01 to 100.
        all_ops: Also change brightness, color, contrast and sharpness.
        interpolation: Of rotations, shears and translations: "nearest", "bilinear" or "bicubic".
        fill: Level outside of the moved image: None (0), one number, or one for each of three channels.

    Different from torchvision: the mix is rounded to the nearest level. Masks and boxes stay as they are.

    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: str = "bilinear"
    fill: int | Sequence[int] | None = None

    op: ClassVar[str] = "aug_mix"

    def __post_init__(self) -> None:
        depth = arguments.integer("AugMix: chain_depth", self.chain_depth, -1, _MAX_STEPS)
        if depth == 0:
            raise ValueError("AugMix: chain_depth must be -1 or at least 1; got 0")
        width = arguments.integer("AugMix: mixture_width", self.mixture_width, 1, _MAX_STEPS)
        steps = width * (_RANDOM_DEPTH if depth < 0 else depth)
        if steps > _MAX_STEPS:
            raise ValueError(
                f"AugMix: mixture_width * chain_depth must be at most {_MAX_STEPS} (-1 counts as 3); got {steps}"
            )
        self._set(
            severity=arguments.integer("AugMix: severity", self.severity, 1, 10),
            mixture_width=width,
            chain_depth=depth,
            alpha=arguments.number("AugMix: alpha", self.alpha, 0.01, 100),
            all_ops=arguments.flag("AugMix: all_ops", self.all_ops),
            interpolation=arguments.choice("AugMix: interpolation", self.interpolation, INTERPOLATIONS),
            fill=checked_fill("AugMix: fill", self.fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        space = Space(9, translate=1 / 3, bits=4)
        amount, warp = whole(0, self.severity - 1), filter_and_fill(self.interpolation, self.fill)
        names = _ALL_NAMES if self.all_ops else _NAMES
        step = choice([space.operations(name, amount, warp) for name in names], (1,) * len(names))
        if self.chain_depth < 0:
            third = (("apply", (1 / 2, len(step))), *step)
            second = (*step, *third)
            chain = (*step, ("apply", (2 / 3, len(second))), *second)
        else:
            chain = step * self.chain_depth
        body = branches([chain] * self.mixture_width, (1,) * self.mixture_width)
        return (("mix", (self.alpha, len(body))), *body)

    def for_mask(self) -> Transform:
        return _NeverRun(len(self.operations()))


@dataclass(frozen=True)
class _NeverRun(Transform):
    """Stands for `count` operations of an image that its mask skips, so that those behind them keep their numbers."""

    count: int

    op: ClassVar[str] = "never_run"

    def operations(self) -> tuple[Operation, ...]:
        return (("horizontal_flip", (0.0,)),) * self.count
