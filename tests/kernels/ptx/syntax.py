# SPDX-License-Identifier: Apache-2.0
"""Parses the PTX that Triton compiles into a list of labels and instructions.

Only what LLVM's PTX back end and Triton's inline assembly write is understood: one entry function, one statement per
semicolon, registers in numbered families (`%r<30>`) or named in the braces of inline assembly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"\.visible \.entry (\w+)\(([^)]*)\)")
_PARAMETER = re.compile(r"\.param \.(\w+)(?:\s+\.ptr[^,\n]*?)?\s+(\w+)\s*(?:,|$)", re.MULTILINE)
_LABEL = re.compile(r"([$\w]+):\s*")
_FAMILY = re.compile(r"%?([A-Za-z_]+)<(\d+)>")
_LOCAL = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+(\w+)\[(\d+)\]")
_GUARD = re.compile(r"@(!?)(%?\w+)\s+")
_SOURCE = re.compile(r"\.loc\s.*//\s*([\w.]+:\d+)")


class UnknownPtx(ValueError):
    """The PTX holds something that the executor does not know; its result would mean nothing."""


@dataclass(frozen=True)
class Label:
    """A target of branches."""

    name: str


@dataclass(frozen=True)
class Instruction:
    """One instruction: `@!%p1 ld.global.b32 {%r1}, [%rd2 + 4];`."""

    line: int
    """Its line of the PTX, from 1."""
    source: str
    """The line of the Python source that it was compiled from, "triton.py:55"; empty if the PTX does not say."""
    text: str
    guard: str | None
    """The predicate register that it depends on."""
    negated: bool
    opcode: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.opcode[0]

    @property
    def type(self) -> str:
        return self.opcode[-1]


@dataclass(frozen=True)
class Kernel:
    """An entry function."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    """The type and the name of each."""
    registers: dict[str, str]
    """The type of each family of registers, and of each register with a name of its own."""
    local_bytes: int
    body: tuple[Label | Instruction, ...]


def parse(ptx: str) -> Kernel:
    """Parse the first entry function of a PTX module."""
    entry = _ENTRY.search(ptx)
    if entry is None:
        raise UnknownPtx("no .visible .entry was found in the PTX")
    begin = ptx.index("{", entry.end()) + 1
    reader = _Reader(first_line=ptx.count("\n", 0, begin) + 1)
    for text in ptx[begin : _matching_brace(ptx, begin)].split("\n"):
        reader.read_line(text)
    parameters = tuple((kind, name) for kind, name in _PARAMETER.findall(entry.group(2)))
    return Kernel(entry.group(1), parameters, reader.registers, reader.local_bytes, tuple(reader.body))


def _matching_brace(ptx: str, begin: int) -> int:
    depth = 1
    for at in range(begin, len(ptx)):
        depth += {"{": 1, "}": -1}.get(ptx[at], 0)
        if depth == 0:
            return at
    raise UnknownPtx("the entry function has no end")


class _Reader:
    """Reads a function's body line by line."""

    def __init__(self, first_line: int) -> None:
        self.registers: dict[str, str] = {}
        self.local_bytes = 0
        self.body: list[Label | Instruction] = []
        self._line, self._source = first_line - 1, ""

    def read_line(self, raw: str) -> None:
        self._line += 1
        if (source := _SOURCE.search(raw)) is not None:
            self._source = source.group(1)
        for part in raw.split("//", maxsplit=1)[0].split(";"):
            self._read_statement(part.strip())

    def _read_statement(self, text: str) -> None:
        while (label := _LABEL.match(text)) is not None:
            self.body.append(Label(label.group(1)))
            text = text[label.end() :]
        if text in {"", "{", "}"}:  # the braces of inline assembly
            return
        text = text.removeprefix("{").strip()
        if text.startswith(".reg"):
            self._declare(text)
        elif (local := _LOCAL.match(text)) is not None:
            self.local_bytes += int(local.group(2))
        elif not text.startswith("."):
            self.body.append(self._instruction(text))

    def _declare(self, text: str) -> None:
        _, kind, names = text.split(maxsplit=2)
        for name in (each.strip() for each in names.split(",")):
            family = _FAMILY.fullmatch(name)
            key = family.group(1) if family else name.strip("%")
            if self.registers.setdefault(key, kind[1:]) != kind[1:]:
                raise UnknownPtx(f"line {self._line}: the register {name} is declared with two types")

    def _instruction(self, text: str) -> Instruction:
        rest, guard = text, _GUARD.match(text)
        if guard is not None:
            rest = text[guard.end() :]
        opcode, *operands = rest.split(maxsplit=1)
        return Instruction(
            line=self._line,
            source=self._source,
            text=text,
            guard=guard.group(2) if guard else None,
            negated=bool(guard and guard.group(1)),
            opcode=tuple(opcode.split(".")),
            operands=split_operands(operands[0]) if operands else (),
        )


def split_operands(text: str) -> tuple[str, ...]:
    """Split at the commas outside of brackets and braces."""
    operands, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            operands.append(text[start:at].strip())
            start = at + 1
    operands.append(text[start:].strip())
    return tuple(operand for operand in operands if operand)
