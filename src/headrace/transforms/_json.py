# SPDX-License-Identifier: Apache-2.0
"""Read transforms from JSON. Every member is checked and unknown members are errors (spec/recipe.md §2)."""

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
    arguments = {name: value for name, value in document.items() if name != "op"}
    known = {field.name: field.default is MISSING for field in fields(kind)}
    unknown = [name for name in arguments if name not in known]
    missing = [name for name, required in known.items() if required and name not in arguments]
    if unknown or missing:
        problem = f"unknown member {unknown[0]!r}" if unknown else f"missing member {missing[0]!r}"
        raise ValueError(f"transform {op!r}: {problem}; its members are {', '.join(known)}")
    if kind is Views:
        arguments["transforms"] = list_from_json(arguments["transforms"])
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(str(error)) from None


def list_from_json(document: Any) -> tuple[Transform, ...]:
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
