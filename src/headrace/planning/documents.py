# SPDX-License-Identifier: Apache-2.0
"""Reading the JSON of plans and calibrations: every part is checked, and what is wrong is named with its place."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Document:
    """A JSON object with the name that messages give it."""

    def __init__(self, value: Any, name: str) -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} is {_shown(value)}; an object is expected")
        self.value, self._name = value, name

    def number(self, key: str, *, least: float = 0.0, default: float | None = None) -> float:
        """A finite number; what is null or missing is the default, if there is one."""
        value = self.value.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
            raise ValueError(f"{self._name} has {key}: {_shown(value)}; a number from {least:g} is expected")
        return float(value)

    def integer(self, key: str, *, least: int = 0) -> int:
        value = self.number(key, least=least)
        if value != int(value):
            raise ValueError(f"{self._name} has {key}: {value}; a whole number is expected")
        return int(value)

    def text(self, key: str, *, choices: Sequence[str] = (), default: str | None = None) -> str:
        value = self.value.get(key, default)
        if not isinstance(value, str) or (choices and value not in choices):
            expected = f"one of {', '.join(choices)}" if choices else "text"
            raise ValueError(f"{self._name} has {key}: {_shown(value)}; {expected} is expected")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.value.get(key, default)
        if not isinstance(value, bool):
            raise ValueError(f"{self._name} has {key}: {_shown(value)}; true or false is expected")
        return value

    def items(self, key: str) -> list[Any]:
        value = self.value.get(key)
        if not isinstance(value, list):
            raise ValueError(f"{self._name} has {key}: {_shown(value)}; a list is expected")
        return value

    def inner(self, key: str) -> Document:
        return Document(self.value.get(key), f"{self._name}'s {key}")

    def plain(self, key: str) -> dict[str, Any]:
        """An object that is carried along and not looked into; {} if it is missing."""
        return dict(Document(self.value.get(key, {}), f"{self._name}'s {key}").value)

    def numbers(self, key: str) -> dict[str, float]:
        """An object of numbers."""
        inner = self.inner(key)
        return {str(name): inner.number(name) for name in inner.value}

    def version(self, expected: int) -> None:
        if self.value.get("version") != expected:
            raise ValueError(
                f"{self._name} has version {_shown(self.value.get('version'))} and this Headrace reads {expected}; "
                f"make it anew"
            )


def read_json(source: Any, name: str) -> Any:
    """Take a JSON value as it is, or read it from a file."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"a {name} is an object of JSON or a file, not {_shown(source)}")
    path = Path(source)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no {name}: {error}") from None


def write_json(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Write under a temporary name and rename: nobody sees half of it."""
    place = Path(path)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def finite(value: float) -> float | None:
    """JSON has no infinity: null stands for what has no limit."""
    return value if math.isfinite(value) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
