# SPDX-License-Identifier: Apache-2.0
"""Policies by timm's strings, such as "rand-m9-mstd0.5-inc1"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform
from headrace.transforms._control import choice
from headrace.transforms._photometric import EIGHT_BIT_LEVELS, WHOLE_EIGHT_BIT_LEVELS
from headrace.transforms.policies._learned import sub_policies
from headrace.transforms.policies._steps import (
    ENHANCEMENTS,
    FILTERS,
    NORMAL,
    PLAIN,
    UNIFORM,
    Amount,
    checked_fill,
    enhanced,
    filter_and_fill,
    fixed,
    level,
    moved,
)

_LAST = 10.0
"""The usual greatest magnitude."""

_NUMBER = re.compile(r"([a-z]+)(\d+(?:\.\d+)?|inf)")
_RAND_DEFAULTS = {"m": 10.0, "n": 2.0, "p": 0.5, "mstd": 0.0, "mmax": _LAST, "inc": 0.0}
_RAND_NAMES = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast"),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY"),
)
# Of EfficientNet's TPU implementation: as the sub-policies of the paper, but with magnitudes for all.
_V0 = """
    Equalize 8 1 ShearY 8 4 | Color 4 9 Equalize 6 3 | Color 4 1 Rotate 6 8 | Solarize 8 3 Equalize 4 7
    Solarize 4 2 Solarize 6 2 | Color 2 0 Equalize 8 8 | Equalize 4 8 SolarizeAdd 8 3 | ShearX 2 9 Rotate 6 8
    Color 6 1 Equalize 10 2 | Invert 4 9 Rotate 6 0 | Equalize 10 9 ShearY 6 3 | Color 4 7 Equalize 6 0
    Posterize 4 6 AutoContrast 4 7 | Solarize 6 8 Color 6 9 | Solarize 2 4 Rotate 8 9 | Rotate 10 7 TranslateY 8 9
    ShearX 0 0 Solarize 8 4 | ShearY 8 0 Color 6 4 | Color 10 0 Rotate 6 2 | Equalize 8 4 Equalize 0 8
    Equalize 10 4 AutoContrast 6 2 | ShearY 4 7 SolarizeAdd 6 7 | Posterize 8 2 Solarize 6 10
    Solarize 6 8 Equalize 6 1 | Color 8 6 Rotate 4 5"""


@dataclass(frozen=True)
class TimmAugment(Transform):
    """Apply a policy that is described by timm's string. As `rand_augment_transform` and `auto_augment_transform`.

        TimmAugment("rand-m9-mstd0.5-inc1", fill=(124, 116, 104))

    Args:
        config: "rand", followed by any of `-m` (magnitude, 10), `-n` (operations per image, 2), `-p` (probability of
            each, 0.5), `-mstd` (standard deviation of the magnitude, 0; uniform below it if above 100 or inf), `-mmax`
            (greatest magnitude, 10) and `-inc1` (operations that get stronger with the magnitude); or "original",
            "originalr", "v0" or "v0r" of AutoAugment, which may be followed by `-mstd`.
        fill: Level outside of the moved image, one number or three. timm uses the mean color of the dataset if it knows
            it.
        interpolation: "random" draws bilinear or bicubic for each operation, as timm does by default.
        translate: Greatest translation as a share of the side.

    Pixel values change as Pillow changes them, exactly. The sets of operations that are chosen with `-t` are not
    available: they are drawn without replacement, or blur.

    """

    config: str
    fill: int | Sequence[int] | None = (128, 128, 128)
    interpolation: str = "random"
    translate: float = 0.45

    op: ClassVar[str] = "timm_augment"

    def __post_init__(self) -> None:
        if not isinstance(self.config, str):
            raise TypeError(f"TimmAugment: config must be a string; got {self.config!r}")
        self._set(
            fill=checked_fill("TimmAugment: fill", self.fill),
            interpolation=arguments.choice("TimmAugment: interpolation", self.interpolation, tuple(FILTERS)),
            translate=arguments.number("TimmAugment: translate", self.translate, 0, 1),
        )
        self.operations()  # raises if the string is wrong

    def operations(self) -> tuple[Operation, ...]:
        kind, *sections = self.config.split("-")
        if kind == "rand":
            return self._rand(_settings(self.config, sections, _RAND_DEFAULTS))
        if kind in {"original", "originalr", "v0", "v0r"}:
            return self._auto(kind, _settings(self.config, sections, {"mstd": 0.0})["mstd"])
        raise ValueError(
            f"TimmAugment: config must begin with rand, original, originalr, v0 or v0r; got {self.config!r}"
        )

    def for_mask(self) -> Transform:
        return replace(self, fill=None)

    def _rand(self, settings: dict[str, float]) -> tuple[Operation, ...]:
        layers = arguments.integer("TimmAugment: n", int(settings["n"]), 1, 15)
        p = arguments.probability("TimmAugment: p", settings["p"])
        amount = _amount(settings["m"], settings["mstd"], settings["mmax"])
        bodies = [self._step(name, p, amount, increasing=settings["inc"] > 0) for name in _RAND_NAMES]
        return choice(bodies, (1,) * len(bodies)) * layers

    def _auto(self, kind: str, deviation: float) -> tuple[Operation, ...]:
        posterize = {"original": "PosterizeOriginal", "v0": "Posterize"}.get(kind, "PosterizeIncreasing")
        bodies = [
            [
                each
                for name, p, magnitude in steps
                for each in self._step(
                    posterize if name == "Posterize" else name, p, _amount(magnitude, deviation, _LAST)
                )
            ]
            for steps in (sub_policies("imagenet") if kind.startswith("original") else sub_policies(_V0))
        ]
        return choice(bodies, (1,) * len(bodies))

    def _step(self, name: str, p: float, amount: Amount, *, increasing: bool = False) -> list[Operation]:
        """Return one operation of timm's, whose strength is a function of the magnitude."""
        if name in PLAIN:
            return [(PLAIN[name], (p,))]
        if name in ENHANCEMENTS and increasing:
            return enhanced(name, p, level(amount, 0.9 / _LAST, signed=True), least=0.1)
        if name in ENHANCEMENTS:
            return enhanced(name, p, level(amount, 1.8 / _LAST), base=0.1)
        if name.startswith(("Posterize", "Solarize")):
            return [_cut(name, p, amount, increasing=increasing)]
        at_most = {"Rotate": 30.0, "ShearX": 0.3, "ShearY": 0.3}.get(name, self.translate)
        return moved(name, amount, at_most / _LAST, filter_and_fill(self.interpolation, self.fill), p)


def _cut(name: str, p: float, amount: Amount, *, increasing: bool) -> Operation:
    """Return a posterize or solarize of timm's, which cuts the fraction of the magnitude's share off."""
    bits, threshold = 4 / _LAST, 256 / _LAST
    operations = {
        "Posterize": ("posterize", (p, 0, *level(amount, bits))),
        "PosterizeOriginal": ("posterize", (p, 0, *level(amount, bits, base=4))),
        "PosterizeIncreasing": ("posterize", (p, 1, *level(amount, -bits, base=4))),
        "Solarize": ("solarize", (p, WHOLE_EIGHT_BIT_LEVELS, *level(amount, threshold))),
        "SolarizeIncreasing": ("solarize", (p, EIGHT_BIT_LEVELS, *level(amount, -threshold, base=256))),
        "SolarizeAdd": ("solarize_add", (p, *level((*amount[:4], min(amount[4], 128 / 11)), 110 / _LAST))),
    }
    return operations[f"{name}Increasing" if increasing and f"{name}Increasing" in operations else name]


def _settings(config: str, sections: Sequence[str], defaults: dict[str, float]) -> dict[str, float]:
    settings = dict(defaults)
    for section in sections:
        found = _NUMBER.fullmatch(section)
        if not found or found[1] not in defaults:
            known = ", ".join(f"-{name}" for name in defaults)
            raise ValueError(f"TimmAugment: {section!r} in {config!r} must be one of {known} with a number")
        settings[found[1]] = float(found[2])
    return settings


def _amount(magnitude: float, deviation: float, most: float) -> Amount:
    """Return the distribution of the magnitude."""
    if not 0 <= magnitude <= 1e4 or not 0 < most <= 1e4:
        raise ValueError(f"TimmAugment: magnitudes must be in [0, 10000]; got {magnitude:g} and {most:g}")
    if deviation > 100:
        return UNIFORM, 0, magnitude, 0, most
    if deviation > 0:
        return NORMAL, magnitude, deviation, 0, most
    return fixed(min(magnitude, most))
