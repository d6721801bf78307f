# SPDX-License-Identifier: Apache-2.0
"""The result of a benchmark: a JSON document that names its command, machine and commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import headrace
from benchmarks import machine
from benchmarks.machine import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "benchmarks" / "results"

_LINE = 240
_DIGITS = 6  # significant; a timing has no more


def frame(benchmark: str, command: str, libraries: Iterable[str] = ()) -> dict[str, Any]:
    """Return a document without measurements: what runs, where, and with which versions."""
    return {
        "benchmark": benchmark,
        "command": command,
        "machine": machine.describe(),
        "libraries": machine.library_versions(libraries),
        "headrace": {
            "version": headrace.__version__,
            "commit": machine.commit(),
            "target": headrace.codec.active_target(),
        },
    }


def provenance(document: Mapping[str, Any]) -> str:
    """Say in one sentence where the figures come from."""
    on, ours = document["machine"], document["headrace"]
    target = f", {ours['target']} target" if ours["target"] else ""
    return (
        f"Measured with `{document['command']}` at commit {ours['commit'] or 'unknown'} on {on['cpu']} "
        f"({on['cores']} cores{target}, {on['python']})."
    )


def read(path: Path) -> dict[str, Any]:
    """Read a document that `write` wrote."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist; `python benchmarks/{path.stem}.py … -o {path}` writes it")
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or "benchmark" not in document:
        raise ValueError(f"{path} must be the result of a benchmark; `python benchmarks/{path.stem}.py` writes one")
    return document


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document, and create its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps(document) + "\n", encoding="utf-8")


def dumps(value: Any, indent: int = 0) -> str:
    """Return JSON with one measurement per line, so that a diff is readable."""
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
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return value
