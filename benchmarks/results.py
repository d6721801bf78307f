# SPDX-License-Identifier: Apache-2.0
"""Results on disk: JSON that a person can read and a diff can show, one measurement a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.machine import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "benchmarks" / "results"

_LINE = 160
_FIGURES = 6  # significant; a timing has no more


def read(path: Path) -> dict[str, Any]:
    """Read a document that `write` wrote."""
    if not path.is_file():
        raise ValueError(f"there are no results in {path}: `python benchmarks/{path.stem}.py … -o {path}` makes them")
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or "benchmark" not in document:
        raise ValueError(
            f"{path} is no result of a benchmark: make it anew with the command that docs/benchmarks.md names"
        )
    return document


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document, with its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps(document) + "\n", encoding="utf-8")


def dumps(value: Any, indent: int = 0) -> str:
    """JSON in which whatever fits on a line stands on one."""
    value = _rounded(value)
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= _LINE or not isinstance(value, dict | list):
        return line
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key)}: {dumps(part, indent + 1)}" for key, part in value.items()]
    else:
        parts = [f"{inner}{dumps(part, indent + 1)}" for part in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([opening, ",\n".join(parts), " " * indent + closing])


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_FIGURES}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return value
