# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses as JSON and back, every value checked against its type on the way in.

A dataclass is an object with its fields' names; tuples are lists; None is left out in writing. Numbers are finite and
not negative, as all figures of a profile are. A member that the type does not have is an error and not skipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headrace.errors import InvalidReport

T = TypeVar("T")
_LARGEST_WHOLE = 2**63 - 1
_LEAST, _LARGEST = 1e-30, 1e30
"""Nothing that is measured lies outside, and within them no product or ratio of a few overflows."""


def write(value: Any, where: str) -> Any:
    """Turn a dataclass into plain JSON; `where` names it in errors."""
    if is_dataclass(value) and not isinstance(value, type):
        members = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: write(member, f"{where}.{name}") for name, member in members.items() if member is not None}
    if isinstance(value, Mapping):
        return {str(name): write(member, f"{where}.{name}") for name, member in value.items()}
    if isinstance(value, (tuple, list)):
        return [write(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidReport(f"{where} is {value}; a report holds finite numbers only, leave the figure out")
    return value


def read(kind: type[T], tree: Any, where: str) -> T:
    """Make a dataclass of plain JSON; InvalidReport names the first member that is not as it should be."""
    found: T = _read_object(kind, tree, where)
    return found


def _read_object(kind: Any, tree: Any, where: str) -> Any:
    if not isinstance(tree, dict):
        raise _wrong(where, tree, "an object")
    hints, required = _members(kind)
    for name in tree:
        if name not in hints:
            raise InvalidReport(f"{where} has a member {name!r} that this version does not know")
    for name in required:
        if name not in tree:
            raise InvalidReport(f"{where} lacks {name!r}")
    return kind(**{name: _read_value(hints[name], value, f"{where}.{name}") for name, value in tree.items()})


@cache
def _members(kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a dataclass with their types, and the names of those that have no default."""
    needed = (field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)
    return get_type_hints(kind), tuple(needed)


def _read_value(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _read_object(hint, value, where)
    if origin in (Union, UnionType):
        return _read_union(arguments, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, value, "a list")
        return tuple(_read_value(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, value, "an object")
        return {name: _read_value(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
    return _read_plain(hint, value, where)


def _read_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    """Read `X | None`, or the number-or-text of a price list."""
    if value is None and NoneType in arguments:
        return None
    others = [argument for argument in arguments if argument is not NoneType]
    if str in others and isinstance(value, str):
        return value
    return _read_value(others[0], value, where)


def _read_plain(hint: Any, value: Any, where: str) -> Any:
    if hint is Any:
        return value
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise _wrong(where, value, f"one of {', '.join(map(repr, get_args(hint)))}")
        return value
    if hint in (int, float):
        return _read_number(hint, value, where)
    if not isinstance(value, hint):
        raise _wrong(where, value, {str: "text", bool: "true or false"}[hint])
    return value


def _read_number(hint: Any, value: Any, where: str) -> Any:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if hint is int and not (is_whole and 0 <= value <= _LARGEST_WHOLE):
        raise _wrong(where, value, "a whole number, 0 or more")
    if hint is float and not ((is_whole or isinstance(value, float)) and (value == 0 or _LEAST <= value <= _LARGEST)):
        raise _wrong(where, value, f"0, or a number from {_LEAST:g} to {_LARGEST:g},")
    return hint(value)


def _wrong(where: str, value: Any, expected: str) -> InvalidReport:
    shown = repr(value)
    return InvalidReport(f"{where} is {shown if len(shown) <= 60 else shown[:57] + '…'}; {expected} is expected")
