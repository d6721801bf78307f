# SPDX-License-Identifier: Apache-2.0
"""No two variables that a loop of a kernel changes begin as the same value.

Triton's front end finds what a loop carries by comparing the values before and after its body. Of two variables that
begin as one value, a body that hands the one to the other looks as if it changed nothing, and the variable is not
carried. Triton reports nothing, and its interpreter, which executes Python, does not show it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).resolve().parents[2] / "src" / "headrace" / "kernels").rglob("*.py"))
DEFECT = """
@triton.jit
def kernel(n):
    west = tl.zeros((32,), tl.int32)
    north = west
    for _ in range(n):
        north_west = north
        north = tl.flip(west)
        west = west + north_west
"""


def is_compiled(node):
    names = (each.func if isinstance(each, ast.Call) else each for each in getattr(node, "decorator_list", ()))
    return isinstance(node, ast.FunctionDef) and any(ast.unparse(name).endswith("jit") for name in names)


def assigned(node):
    """The names that statements give a value to."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


def aliases(node):
    """Pairs of names of which one is given the value of the other as it is, and where."""
    for each in ast.walk(node):
        if not isinstance(each, ast.Assign):
            continue
        for target in each.targets:
            parts = [(target, each.value)]
            if isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple):
                parts = list(zip(target.elts, each.value.elts, strict=False))
            for to, value in parts:
                if isinstance(to, ast.Name) and isinstance(value, ast.Name):
                    yield to.id, value.id, each


def carried_aliases(source):
    """Variables that begin as one value before a loop that changes both, as "line: name = other"."""
    found = []
    for function in filter(is_compiled, ast.walk(ast.parse(source))):
        for loop in ast.walk(function):
            if isinstance(loop, (ast.For, ast.While)):
                changed, inside = assigned(loop), set(ast.walk(loop))
                found += [
                    f"{alias.lineno}: {one} = {other}"
                    for one, other, alias in aliases(function)
                    if {one, other} <= changed and alias not in inside and alias.lineno < loop.lineno
                ]
    return sorted(set(found))


def test_the_check_finds_the_defect():
    assert carried_aliases(DEFECT) == ["5: north = west"]
    assert carried_aliases(DEFECT.replace("north = west\n", "north = tl.zeros((32,), tl.int32)\n")) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(SOURCES[0].parent).as_posix())
def test_carried_variables_begin_apart(path):
    assert carried_aliases(path.read_text(encoding="utf-8")) == []
