# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses to JSON and back; every value is checked against its type when it is read.

A dataclass becomes an object, a tuple a list, and None is omitted. Numbers must be finite and not negative. An unknown
member is an error.
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
_MAX_INTEGER = 2**63 - 1
_MIN, _MAX = 1e-30, 1e30
"""No measurement is outside this range, and products and ratios of values inside it do not overflow."""


def write(value: Any, where: str) -> Any:
    """Turn a dataclass into plain JSON; `where` is its name in errors."""
    if is_dataclass(value) and not isinstance(value, type):
        members = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: write(member, f"{where}.{name}") for name, member in members.items() if member is not None}
    if isinstance(value, Mapping):
        return {str(name): write(member, f"{where}.{name}") for name, member in value.items()}
    if isinstance(value, (tuple, list)):
        return [write(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidReport(f"{where} must be a finite number; got {value}: omit it if it is unknown")
    return value


def read(kind: type[T], tree: Any, where: str) -> T:
    """Make a dataclass from plain JSON; InvalidReport names the first member that is wrong."""
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
            raise InvalidReport(f"{where} must have a member {name!r}")
    return kind(**{name: _read_value(hints[name], value, f"{where}.{name}") for name, value in tree.items()})


@cache
def _members(kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the types of a dataclass's fields, and the names of the fields without a default."""
    required = (field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)
    return get_type_hints(kind), tuple(required)


def _read_value(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _read_object(hint, value, where)
    if origin in (Union, UnionType):  # always `X | None`
        return None if value is None else _read_value(next(a for a in arguments if a is not NoneType), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(where, value, "a list")
        return tuple(_read_value(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, value, "an object")
        return {name: _read_value(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
    return _read_plain(hint, value, where)


def _read_plain(hint: Any, value: Any, where: str) -> Any:
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    if hint in (int, float):
        return _read_number(hint, value, where)
    if choices and value not in choices:
        raise _wrong(where, value, f"one of {', '.join(map(repr, choices))}")
    if hint in (str, bool) and not isinstance(value, hint):
        raise _wrong(where, value, {str: "a string", bool: "true or false"}[hint])
    return value


def _read_number(hint: Any, value: Any, where: str) -> Any:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if hint is int and not (is_integer and 0 <= value <= _MAX_INTEGER):
        raise _wrong(where, value, "an integer >= 0")
    if hint is float and not ((is_integer or isinstance(value, float)) and (value == 0 or _MIN <= value <= _MAX)):
        raise _wrong(where, value, f"0 or a number from {_MIN:g} to {_MAX:g}")
    return hint(value)


def _wrong(where: str, value: Any, expected: str) -> InvalidReport:
    shown = repr(value)
    return InvalidReport(f"{where} must be {expected}; got {shown if len(shown) <= 60 else shown[:57] + '…'}")
