# SPDX-License-Identifier: Apache-2.0
"""Instructions that read or write memory, as C statements: each access goes through the shadow memory of the runtime.

Accesses name their line of the PTX, so that a hazard can be traced to the instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.kernels.ptx.operands import BITS, Operands, c_type, unsigned
from tests.kernels.ptx.syntax import Instruction, UnknownPtx

_SPACES = {"global": "u64", "local": "u64", "generic": "u64", "shared": "u32"}
_ORDERS = {"volatile", "relaxed", "acquire", "acq_rel", "gpu", "cta", "sys"}
_HINTS = re.compile(r"L[12]::\w+")
_COMBINED = {"max": "old > by ? old : by", "min": "old < by ? old : by", "add": "old + by", "or": "old | by"}
_COMBINED |= {"and": "old & by", "xor": "old ^ by", "exch": "by"}


def _space(of: Instruction) -> str:
    named = [part.removesuffix("::cta") for part in of.opcode[1:-1]]
    return next((part for part in named if part in _SPACES), "generic")


def _address(of: Instruction, operand: str, operands: Operands) -> str:
    space = _space(of)
    address = operands.address(operand, _SPACES[space])
    return f"LOCAL_WINDOW + {address}" if space == "local" else address


def _known(of: Instruction, allowed: set[str]) -> None:
    for part in of.opcode[1:-1]:
        plain = part.removesuffix("::cta")
        if plain not in _SPACES and part not in allowed and not _HINTS.fullmatch(part):
            raise UnknownPtx(f"{of.text}: .{part} is not known")


def _load(of: Instruction, operands: Operands) -> str:
    if "param" in of.opcode:
        return operands.write(of.operands[0], of.type, f"arguments[{operands.parameter(of.operands[1])}]")
    _known(of, {"v2", "v4", "volatile"})
    space = _space(of)
    to = operands.several(of.operands[0])
    kind = of.type if of.type[0] == "s" else unsigned(of.type)
    n_bytes = len(to) * BITS[kind] // 8
    address = _address(of, of.operands[1], operands)
    parts = " ".join(operands.write(each, kind, f"part[{i}]") for i, each in enumerate(to))
    return f"{c_type(kind)} part[{len(to)}]; load_{space}(part, {address}, {n_bytes}, {of.line}, t); {parts}"


def _store(of: Instruction, operands: Operands) -> str:
    _known(of, {"v2", "v4", "volatile"})
    space, kind = _space(of), unsigned(of.type)
    values = [operands.read(each, kind) for each in operands.several(of.operands[1])]
    address = _address(of, of.operands[0], operands)
    n_bytes = len(values) * BITS[kind] // 8
    return f"{kind} part[] = {{{', '.join(values)}}}; store_{space}(part, {address}, {n_bytes}, {of.line}, t);"


def _atomic(of: Instruction, operands: Operands) -> str:
    combined = next((part for part in of.opcode if part in _COMBINED), None)
    if combined is None or _space(of) != "global":
        raise UnknownPtx(of.text)
    _known(of, {combined} | _ORDERS)
    to, at, by = of.operands if of.name == "atom" else ("_", *of.operands)
    kind = c_type(of.type)
    made = operands.write(to, of.type, "old")
    return (
        f"{kind} old, by = {operands.read(by, of.type)}, *at = "
        f"atomic_global({operands.address(at, 'u64')}, {BITS[of.type] // 8}, {of.line}, t); "
        f"if (at) {{ old = *at; *at = {_COMBINED[combined]}; {made} }}"
    )


MEMORY: dict[str, Callable[[Instruction, Operands], str]] = {
    "ld": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
}
"""The function for each name of an instruction by which one thread uses memory."""


def matrix(of: Instruction, operands: Operands) -> str:
    """`ldmatrix` and `stmatrix`: 8x8 matrices of 16 bits, whose rows lie at the addresses that eight lanes give."""
    if of.guard is not None or not {"sync", "aligned", "m8n8", "b16"} <= set(of.opcode):
        raise UnknownPtx(of.text)
    loads = of.name == "ldmatrix"
    registers, at = of.operands if loads else reversed(of.operands)
    parts = operands.several(registers)
    row, column = ("at + half", "lane / 4") if "trans" in of.opcode else ("lane / 4", "at + half")
    element = f"rows[{row}][{column}]"
    lines = [f"u32 address[THREADS], word[{len(parts)}][THREADS];"]
    lines.append(f"EACH_THREAD address[t] = {operands.address(at, 'u32')};")
    if not loads:
        lines += [f"EACH_THREAD word[{i}][t] = {operands.read(each, 'u32')};" for i, each in enumerate(parts)]
    lines.append(f"for (int first = 0; first < THREADS; first += 32) for (int i = 0; i < {len(parts)}; i++) {{")
    lines.append("u16 rows[8][8]; u32* own = &word[i][first];")
    access = "{}_shared(rows[r], address[first + 8 * i + r], 16, {}, first + 8 * i + r);"
    each_row = f"for (int r = 0; r < 8; r++) {access.format('load' if loads else 'store', of.line)}"
    each_lane = "for (int lane = 0; lane < 32; lane++) {{ int at = 2 * (lane % 4); {} }}"
    if loads:
        made = "own[lane] = 0; for (int half = 0; half < 2; half++) "
        made += f"own[lane] |= (u32){element} << (16 * half);"
        lines += [each_row, each_lane.format(made)]
    else:
        lines += [each_lane.format(f"for (int half = 0; half < 2; half++) {element} = own[lane] >> (16 * half);")]
        lines.append(each_row)
    lines.append("}")
    if loads:
        lines += [f"EACH_THREAD {{ {operands.write(each, 'b32', f'word[{i}][t]')} }}" for i, each in enumerate(parts)]
    return " ".join(lines)
