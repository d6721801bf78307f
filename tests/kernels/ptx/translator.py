# SPDX-License-Identifier: Apache-2.0
"""Translates a kernel's PTX to C that runs it on the CPU: one program after the other, its threads in lockstep."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tests.kernels.ptx.arithmetic import ARITHMETIC
from tests.kernels.ptx.control import CONTROL, label
from tests.kernels.ptx.memory import MEMORY, matrix
from tests.kernels.ptx.operands import LOCAL_WINDOW, Operands, unsigned
from tests.kernels.ptx.syntax import Instruction, Kernel, Label, UnknownPtx

RUNTIME = Path(__file__).parent / "runtime.h"
_TOGETHER = CONTROL | {"ldmatrix": matrix, "stmatrix": matrix}


def translate(kernel: Kernel, threads: int, shared_bytes: int) -> str:
    """C with one function, `run_kernel`, that runs all programs of a grid."""
    operands = Operands(kernel, threads)
    body = [_statement(part, operands) for part in _merged(kernel)]
    registers = sorted({found for part in kernel.body for found in _registers(part, operands)})
    return "\n".join(
        [
            f"#define THREADS {threads}",
            f"#define SHARED_BYTES {max(shared_bytes, 16)}",
            f"#define LOCAL_BYTES {max(kernel.local_bytes, 16)}",
            f"#define LOCAL_WINDOW {LOCAL_WINDOW}ull",
            f'#include "{RUNTIME.name}"',
            *(f"static {unsigned(kind)} {name}[THREADS];" for name, kind in registers),
            "static void run_program(const u64* arguments) {",
            *body,
            "}",
            '#include "launch.h"',
            "",
        ]
    )


def _merged(kernel: Kernel) -> list[Label | Instruction | list[Instruction]]:
    """Instructions of single threads in a row go into one loop over the threads, except accesses to memory.

    Accesses are not merged: lockstep means that all threads have done one access before any thread does the next.
    """
    parts: list[Label | Instruction | list[Instruction]] = []
    alone = lambda part: isinstance(part, Instruction) and part.name in ARITHMETIC  # noqa: E731
    for is_arithmetic, run in groupby(kernel.body, alone):
        if is_arithmetic:
            parts.append([part for part in run if isinstance(part, Instruction)])
        else:
            parts += run
    return parts


def _statement(part: Label | Instruction | list[Instruction], operands: Operands) -> str:
    if isinstance(part, Label):
        return label(part.name) + ":;"
    if isinstance(part, list):
        return "EACH_THREAD {\n" + "\n".join(_of_thread(each, operands) for each in part) + "\n}"
    if part.name in _TOGETHER:
        return f"/* {part.line} */ {{ {_emit(part, operands)} }}"
    return f"/* {part.line} */ EACH_THREAD {_of_thread(part, operands)}"


def _of_thread(part: Instruction, operands: Operands) -> str:
    body = f"{{ {_emit(part, operands)} }}"
    if part.guard is None:
        return body
    return f"if ({'!' if part.negated else ''}{operands.read(part.guard, 'pred')}) {body}"


def _emit(part: Instruction, operands: Operands) -> str:
    emit = (ARITHMETIC | MEMORY | _TOGETHER).get(part.name)
    if emit is None:
        raise UnknownPtx(f"line {part.line}: {part.text}: the executor has no such instruction")
    try:
        return emit(part, operands)
    except (UnknownPtx, KeyError, ValueError) as error:
        raise UnknownPtx(f"line {part.line}: {part.text}: {error}") from error


def _registers(part: Label | Instruction, operands: Operands) -> list[tuple[str, str]]:
    if isinstance(part, Label):
        return []
    names = [part.guard or "", *(piece for operand in part.operands for piece in _pieces(operand))]
    return [found for name in names if (found := operands.register(name)) is not None]


def _pieces(operand: str) -> list[str]:
    for character in "{}[]|,+!":
        operand = operand.replace(character, " ")
    return operand.split()
