# SPDX-License-Identifier: Apache-2.0
"""The recipe: how samples become batches, as JSON, so that another process can make the same batches.

Every member of a document is checked, and unknown members are errors (spec/recipe.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from headrace.transforms import _base as arguments
from headrace.transforms._base import Transform
from headrace.transforms._color import ColorJitter, Grayscale, Normalize
from headrace.transforms._compile import COLORS, DTYPES, LAYOUTS
from headrace.transforms._composition import PerBatch, PerSample, Views, check_order
from headrace.transforms._control import OneOf, RandomApply, RandomChoice, RandomOrder
from headrace.transforms._erasing import RandomErasing
from headrace.transforms._fit import Letterbox, RandomShortestSize, RandomZoomOut, ScaleJitter
from headrace.transforms._geometry import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)
from headrace.transforms._multicrop import MultiCrop, views_from_json
from headrace.transforms._photometric import (
    JPEG,
    AdjustSharpness,
    AutoContrast,
    Equalize,
    GaussianBlur,
    GaussianNoise,
    Invert,
    Posterize,
    RandomChannelPermutation,
    Solarize,
)
from headrace.transforms._warp import RandomAffine, RandomPerspective, RandomRotation
from headrace.transforms.elastic import ElasticTransform
from headrace.transforms.mixing import CutMix, MixUp, MixUpCutMix
from headrace.transforms.policies import AugMix, AutoAugment, RandAugment, TimmAugment, TrivialAugmentWide

RECIPE_VERSION = 1

_KINDS: dict[str, type[Transform]] = {
    kind.op: kind
    for kind in (
        *(Resize, CenterCrop, RandomCrop, RandomResizedCrop, HorizontalFlip, VerticalFlip, Pad),
        *(ColorJitter, Grayscale, Normalize, Views),
        *(RandomErasing, MixUp, CutMix, MixUpCutMix, MultiCrop),
        *(RandomApply, RandomChoice, OneOf, RandomOrder),
        *(AutoContrast, Equalize, Invert, Posterize, Solarize, AdjustSharpness),
        *(AutoAugment, RandAugment, TrivialAugmentWide, TimmAugment, AugMix),
        *(GaussianBlur, GaussianNoise, RandomChannelPermutation, JPEG),
        *(RandomRotation, RandomAffine, RandomPerspective, ElasticTransform),
        *(ScaleJitter, RandomShortestSize, Letterbox, RandomZoomOut),
    )
}

_DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines the content of a run's batches, and nothing that only affects speed."""

    fields: tuple[str, ...]
    transforms: tuple[Transform, ...]
    seed: int
    batch_size: int
    fingerprint: str
    """Fingerprint of the dataset."""
    world_size: int = 1
    shuffle: bool = False
    drop_last: bool = False
    dtype: str | None = None
    layout: str = "CHW"
    color: str = "auto"
    min_area: float = 1.0
    approximate_jpeg: bool = False
    selection: str | None = None
    """Digest of `indices` or `weights`, if given. A process without them cannot reproduce the batches."""

    def __post_init__(self) -> None:
        checks: dict[str, Any] = {
            "fields": _names(self.fields),
            "transforms": _declarative(self.transforms),
            "seed": arguments.integer("seed", self.seed, 0, 2**64 - 1),
            "batch_size": arguments.integer("batch_size", self.batch_size, 1, 2**31 - 1),
            "world_size": arguments.integer("world_size", self.world_size, 1, 2**31 - 1),
            "shuffle": arguments.flag("shuffle", self.shuffle),
            "drop_last": arguments.flag("drop_last", self.drop_last),
            "dtype": None if self.dtype is None else arguments.choice("dtype", self.dtype, DTYPES),
            "layout": arguments.choice("layout", self.layout, LAYOUTS),
            "color": arguments.choice("color", self.color, COLORS),
            "min_area": arguments.number("min_area", self.min_area, 0, 2**48),
            "approximate_jpeg": arguments.flag("approximate_jpeg", self.approximate_jpeg),
            "fingerprint": _digest("fingerprint", self.fingerprint),
            "selection": None if self.selection is None else _digest("selection", self.selection),
        }
        for name, value in checks.items():
            object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as a JSON object."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["fields"] = list(self.fields)
        plain["transforms"] = [item.to_json() for item in self.transforms]
        return {"version": RECIPE_VERSION, **plain}

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | bytes) -> Recipe:
        """Read a recipe from a JSON object or its text. Raise ValueError if anything is wrong."""
        if isinstance(document, (str, bytes)):
            try:
                document = json.loads(document)
            except ValueError as error:
                raise ValueError(f"the recipe is not valid JSON: {error}") from None
        if not isinstance(document, Mapping):
            raise ValueError(f"a recipe must be a JSON object; got {document!r}")
        if document.get("version") != RECIPE_VERSION:
            raise ValueError(
                f"recipe version must be {RECIPE_VERSION}; got {document.get('version')!r}; "
                f"use the same version of Headrace on both sides"
            )
        members = {name: value for name, value in document.items() if name != "version"}
        _check_members("recipe", cls, members)
        try:
            return cls(**{**members, "transforms": _list_from_json(members["transforms"])})
        except (TypeError, ValueError) as error:
            raise ValueError(f"recipe: {error}") from None


def _names(value: Any) -> tuple[str, ...]:
    names = tuple(value) if arguments.is_sequence(value) else ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError(f"fields must be a list of distinct names; got {value!r}")
    return names


def _declarative(value: Any) -> tuple[Transform, ...]:
    transforms = tuple(value)
    for item in transforms:
        if not isinstance(item, Transform):
            raise TypeError(f"transforms of a recipe must be declarative, because a recipe holds no code; got {item!r}")
    check_order(transforms)
    return transforms


def _digest(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f"{name} must be 32 lower-case hexadecimal digits; got {value!r}")
    return value


def from_json(document: Mapping[str, Any]) -> Transform:
    """Make a transform from the JSON object that its `to_json` returned, or from one written by hand.

    Members with a default may be omitted. Anything else that is wrong raises ValueError.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f'a transform must be an object such as {{"op": "resize", "size": 256}}; got {document!r}')
    op = document.get("op")
    if op in (PerSample.op, PerBatch.op):
        raise ValueError(
            f"{document.get('callable', op)!r} is code, which JSON cannot hold; pass the callable in Python"
        )
    if not isinstance(op, str) or op not in _KINDS:
        raise ValueError(f"op must be one of {', '.join(_KINDS)}; got {op!r}")
    kind = _KINDS[op]
    members = {name: value for name, value in document.items() if name != "op"}
    _check_members(f"transform {op!r}", kind, members)
    if kind is MultiCrop:
        members["views"] = views_from_json(members["views"], _list_from_json)
    if "transforms" in members:
        members["transforms"] = _list_from_json(members["transforms"])
    try:
        return kind(**members)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _list_from_json(document: Any) -> tuple[Transform, ...]:
    """Make the transforms of a JSON list. Errors name the position in the list."""
    if not isinstance(document, (list, tuple)):
        raise ValueError(f"transforms must be a list; got {document!r}")
    made = []
    for position, item in enumerate(document):
        try:
            made.append(from_json(item))
        except ValueError as error:
            raise ValueError(f"transform {position}: {error}") from None
    return tuple(made)


def _check_members(name: str, kind: Any, members: Mapping[str, Any]) -> None:
    """Raise ValueError unless `members` has every required field of a dataclass and no unknown one."""
    known = {field.name: field.default is MISSING for field in fields(kind)}
    unknown = [member for member in members if member not in known]
    missing = [member for member, required in known.items() if required and member not in members]
    if unknown or missing:
        problem = f"unknown member {unknown[0]!r}" if unknown else f"missing member {missing[0]!r}"
        raise ValueError(f"{name}: {problem}; its members are {', '.join(known)}")
