# SPDX-License-Identifier: Apache-2.0
"""What is measured: recipes, single operations, the images, and the libraries that take part."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from benchmarks._loaders.cases import PROGRAMS
from benchmarks.machine import ROOT

PEERS = ROOT / "build" / "peers"


@dataclass(frozen=True)
class Recipe:
    """A list of transforms; the programs know it by its name."""

    name: str
    title: str
    single: bool = False  # a crop with one operation, whose cost is the difference to the crop alone


@dataclass(frozen=True)
class Library:
    """`program` is `benchmarks/peers/recipe_<program>.py`, in the environment of the same name."""

    program: str
    label: str
    lacks: frozenset[str] = frozenset()
    """Recipes that it has no operation for."""
    stores: tuple[tuple[str, str], ...] = (("jpegs", "files"), ("photos", "files"))

    @property
    def installed(self) -> bool:
        return self.program == "headrace" or (PEERS / self.program / ".installed").exists()

    def command(self) -> list[str]:
        python = sys.executable if self.program == "headrace" else str(PEERS / self.program / "bin" / "python")
        return [python, str(PROGRAMS / f"recipe_{self.program}.py")]


PLAIN = Recipe("plain", "crop, flip, normalize")
RECIPES = (
    PLAIN,
    Recipe("deit", "DeiT: RandAugment, erasing, mixup and cutmix"),
    Recipe("dino", "DINO: 2 global and 8 local crops"),
    Recipe("crops", "DINO's crops without colors"),
    Recipe("simclr", "SimCLR: 2 views"),
    Recipe("jitter", "ColorJitter", single=True),
    Recipe("grayscale", "Grayscale, p = 0.2", single=True),
    Recipe("blur", "GaussianBlur", single=True),
    Recipe("solarize", "Solarize", single=True),
    Recipe("rand_augment", "RandAugment m9 mstd0.5 inc1", single=True),
    Recipe("erasing", "RandomErasing, one value", single=True),
    Recipe("erasing_random", "RandomErasing, random pixels", single=True),
    Recipe("mixup", "MixUp", single=True),
    Recipe("cutmix", "CutMix", single=True),
)
LIBRARIES = (
    Library("headrace", "Headrace", stores=(("jpegs", "keep"), ("photos", "hri"))),
    Library("timm", "timm on DataLoader"),
    Library("dali", "DALI", frozenset({"erasing_random"})),
)
SOURCES = {"jpegs": "500-pixel JPEGs", "photos": "2048x1024: hri:fast for Headrace, PNG for the others"}


def choose(names: str, known: tuple[str, ...], option: str) -> list[str]:
    """Return these comma-separated names; all if there are none."""
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        if name not in known:
            raise ValueError(f"--{option} must be from {', '.join(known)}; got {name}")
    return wanted or list(known)
