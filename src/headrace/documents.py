# SPDX-License-Identifier: Apache-2.0
"""JSON documents (plans, calibrations, reports) from and to frozen dataclasses, with every value checked on reading.

A dataclass is an object with the names of its fields. A tuple is a list, and a NamedTuple a list of its fields. Numbers
are finite and not negative.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headrace.files import write_atomic

_T = TypeVar("_T")
_MAX_INTEGER = 2**63 - 1
_MIN_NUMBER, _MAX_NUMBER = 1e-30, 1e30
"""No measured value lies outside, and products and ratios of a few values inside do not overflow."""


@dataclass(frozen=True, slots=True)
class DocumentReader:
    """Reads dataclasses from JSON values, and raises `error` for the first value that is not valid.

    A strict reader refuses members that the dataclass does not have. One that is not strict ignores them, and takes the
    default of a member that is null.
    """

    error: type[Exception] = ValueError
    strict: bool = True

    def read(self, kind: type[_T], tree: Any, where: str) -> _T:
        """Return a `kind` from a JSON object; `where` is its name in error messages."""
        if not isinstance(tree, Mapping):
            raise self._invalid(where, tree, "an object")
        types, required = _members(kind)  # type: ignore[arg-type] # a class is hashable
        given = {name: tree[name] for name in tree if self.strict or (name in types and tree[name] is not None)}
        for name in given:
            if name not in types:
                raise self.error(f"{where} has a member {name!r} that this version does not know")
        for name in required:
            if name not in given:
                raise self.error(f"{where} must have a member {name!r}; it is missing")
        return kind(**{name: self._value(types[name], value, f"{where}.{name}") for name, value in given.items()})

    def load(self, source: Any, version: int, where: str) -> Mapping[str, Any]:
        """Return a JSON object of this version, which is given as it is or as a file."""
        tree = load_json(source, where)
        if not isinstance(tree, Mapping):
            raise self._invalid(where, tree, "an object")
        if tree.get("version") != version:
            found = _shown(tree.get("version"))
            raise self.error(f"{where} must have version {version}; got version {found}. Create it again")
        return tree

    def _value(self, hint: Any, value: Any, where: str) -> Any:
        origin, arguments = get_origin(hint), get_args(hint)
        if is_dataclass(hint):
            return self.read(hint, value, where)  # type: ignore[arg-type] # a class, not an instance
        if origin in (Union, UnionType):  # `X | None`, or `float | str`
            if str in arguments and isinstance(value, str):
                return value
            inner = next(argument for argument in arguments if argument is not NoneType)
            return None if value is None else self._value(inner, value, where)
        if origin is tuple:
            if not isinstance(value, list):
                raise self._invalid(where, value, "a list")
            return tuple(self._value(arguments[0], item, f"{where}[{n}]") for n, item in enumerate(value))
        if origin in (dict, Mapping):
            if not isinstance(value, Mapping):
                raise self._invalid(where, value, "an object")
            return {str(name): self._value(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
        return self._plain(hint, value, where)

    def _plain(self, hint: Any, value: Any, where: str) -> Any:
        if hint is Any:
            return value
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                raise self._invalid(where, value, f"one of {', '.join(map(repr, get_args(hint)))}")
            return value
        if hasattr(hint, "_fields"):
            types = get_type_hints(hint)
            if not isinstance(value, list) or len(value) != len(types):
                raise self._invalid(where, value, f"a list of {', '.join(types)}")
            pairs = zip(types.items(), value, strict=True)
            return hint(*(self._value(each, item, f"{where}.{name}") for (name, each), item in pairs))
        if hint in (int, float):
            return self._number(hint, value, where)
        if not isinstance(value, hint):
            raise self._invalid(where, value, {str: "a string", bool: "true or false"}[hint])
        return value

    def _number(self, hint: Any, value: Any, where: str) -> Any:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if hint is int and not (is_integer and 0 <= value <= _MAX_INTEGER):
            raise self._invalid(where, value, "an integer >= 0")
        is_number = is_integer or isinstance(value, float)
        if hint is float and not (is_number and (value == 0 or _MIN_NUMBER <= value <= _MAX_NUMBER)):
            raise self._invalid(where, value, f"0, or a number from {_MIN_NUMBER:g} to {_MAX_NUMBER:g}")
        return hint(value)

    def _invalid(self, where: str, value: Any, expected: str) -> Exception:
        return self.error(f"{where} must be {expected}; got {_shown(value)}")


@cache
def _members(kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the types of a dataclass's fields, and the names of those that have no default."""
    required = (field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)
    return get_type_hints(kind), tuple(required)


def to_json(value: Any, where: str, error: type[Exception] = ValueError) -> Any:
    """Return a dataclass as JSON values, without the members that are None. A number that is not finite is an error."""
    if is_dataclass(value) and not isinstance(value, type):
        members = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: to_json(each, f"{where}.{name}", error) for name, each in members.items() if each is not None}
    if isinstance(value, Mapping):
        return {str(name): to_json(each, f"{where}.{name}", error) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item, f"{where}[{number}]", error) for number, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise error(f"{where} must be a finite number; got {value}")
    return value


def load_json(source: Any, name: str) -> Any:
    """Return a JSON object as it is, or read it from a file."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"{name} must be a JSON object or a file; got {_shown(source)}")
    path = Path(source)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be a JSON file with a {name}; {error}") from None


def save_json(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Write a document atomically: readers never see an incomplete file."""
    content = json.dumps(document, indent=1, allow_nan=False) + "\n"
    write_atomic(Path(path), content.encode())


def finite(value: float) -> float | None:
    """Return a number, or None for infinity, which JSON cannot express."""
    return value if math.isfinite(value) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
