# SPDX-License-Identifier: Apache-2.0
"""From JSON to transforms; nothing is trusted and nothing is ignored (spec/recipe.md §2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from headrace.transforms._color import ColorJitter, Grayscale, Normalize
from headrace.transforms._composition import PerBatch, PerSample, Views
from headrace.transforms._geometry import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)
from headrace.transforms._transform import Transform

_KINDS: dict[str, type[Transform]] = {
    kind.op: kind
    for kind in (
        *(Resize, CenterCrop, RandomCrop, RandomResizedCrop, HorizontalFlip, VerticalFlip, Pad),
        *(ColorJitter, Grayscale, Normalize, Views),
    )
}


def from_json(document: Mapping[str, Any]) -> Transform:
    """Make a transform of what its `to_json` returned, or of the same written by hand.

    Members that have a default may be left out. Anything else that is not as it should be is a ValueError.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f'a transform is an object such as {{"op": "resize", "size": 256}}; found {document!r}')
    op = document.get("op")
    if op in (PerSample.op, PerBatch.op):
        raise ValueError(f"{document.get('callable', op)!r} is code, which JSON cannot carry; put the callable back")
    if not isinstance(op, str) or op not in _KINDS:
        raise ValueError(f"there is no transform {op!r}; known are {', '.join(_KINDS)}")
    kind = _KINDS[op]
    arguments = {name: value for name, value in document.items() if name != "op"}
    known = {field.name: field.default is MISSING for field in fields(kind)}
    unknown = [name for name in arguments if name not in known]
    missing = [name for name, required in known.items() if required and name not in arguments]
    if unknown or missing:
        found = f"has no {unknown[0]!r}" if unknown else f"lacks {missing[0]!r}"
        raise ValueError(f"the transform {op!r} {found}; its members are {', '.join(known)}")
    if kind is Views:
        arguments["transforms"] = list_from_json(arguments["transforms"])
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(str(error)) from None


def list_from_json(document: Any) -> tuple[Transform, ...]:
    """Make the transforms of a JSON list; an error names the position of the one that is wrong."""
    if not isinstance(document, (list, tuple)):
        raise ValueError(f"transforms are a list; found {document!r}")
    made = []
    for position, item in enumerate(document):
        try:
            made.append(from_json(item))
        except ValueError as error:
            raise ValueError(f"transform {position}: {error}") from None
    return tuple(made)
