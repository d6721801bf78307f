# SPDX-License-Identifier: Apache-2.0
"""Registers, constants and addresses of PTX as C expressions.

A register is an array of unsigned integers with one element per thread. An instruction reads it as the type that the
instruction names, and writes it extended by the sign of that type, as PTX defines.
"""

from __future__ import annotations

import re

from tests.kernels.ptx.syntax import Kernel, UnknownPtx

BITS = {
    **{f"{sign}{bits}": bits for sign in "bus" for bits in (8, 16, 32, 64)},
    "f16": 16,
    "f32": 32,
    "pred": 8,
}
LOCAL_WINDOW = 1 << 62
"""Where the local memory of threads lies in the generic address space; no tensor is there."""

_REGISTER = re.compile(r"%?([A-Za-z_]+)(\d+)")
_INTEGER = re.compile(r"-?(0x[0-9A-Fa-f]+|\d+)U?")
_FLOAT = re.compile(r"0f([0-9A-Fa-f]{8})")
_ADDRESS = re.compile(r"\[\s*([%\w]+)\s*(?:\+\s*(-?\w+))?\s*\]")


def c_type(ptx_type: str) -> str:
    """The C type of a value: `b` is unsigned, a predicate is a byte."""
    if ptx_type not in BITS:
        raise UnknownPtx(f"the type .{ptx_type} is not known")
    return {"f16": "f16", "f32": "f32", "pred": "u8"}.get(ptx_type, ptx_type.replace("b", "u"))


def unsigned(ptx_type: str) -> str:
    """The unsigned type of the same size: what a register of it is stored as."""
    return f"u{BITS[ptx_type]}"


class Operands:
    """The operands of one kernel with so many threads."""

    def __init__(self, kernel: Kernel, threads: int) -> None:
        self._kernel = kernel
        self._specials = {
            **dict.fromkeys(("%tid.y", "%tid.z"), "0"),
            **{f"%ctaid.{axis}": f"program[{number}]" for number, axis in enumerate("xyz")},
            **{f"%nctaid.{axis}": f"grid[{number}]" for number, axis in enumerate("xyz")},
            "%tid.x": "t",
            "%laneid": "(t & 31)",
            "%warpid": "(t / 32)",
            "%ntid.x": str(threads),
        }

    def register(self, operand: str) -> tuple[str, str] | None:
        """The C name and the type of a register; None if the operand is not one."""
        if (own := operand.strip("%")) in self._kernel.registers:
            return f"own_{own}", self._kernel.registers[own]
        numbered = _REGISTER.fullmatch(operand)
        if numbered is None or numbered.group(1) not in self._kernel.registers:
            return None
        return f"{numbered.group(1)}_{numbered.group(2)}", self._kernel.registers[numbered.group(1)]

    def read(self, operand: str, ptx_type: str) -> str:
        """The value of an operand in thread `t`."""
        found = self.register(operand)
        if found is not None:
            stored = f"{found[0]}[t]"
            if ptx_type in {"f16", "f32"}:
                return f"as_{ptx_type}({stored})"
            return f"(({c_type(ptx_type)}){stored})"
        if ptx_type == "pred" and operand.startswith("!"):
            return f"(!{self.read(operand[1:], ptx_type)})"
        return self._constant(operand, ptx_type)

    def _constant(self, operand: str, ptx_type: str) -> str:
        kind = c_type(ptx_type)
        if operand in self._specials:
            return f"(({kind}){self._specials[operand]})"
        if operand == "global_smem" or operand.startswith("__local_depot"):
            return (
                f"(({kind})0)"  # all shared memory of a program, all local memory of a thread: each a space of its own
            )
        if (real := _FLOAT.fullmatch(operand)) is not None:
            bits = f"0x{real.group(1)}u"
            return f"as_f32({bits})" if ptx_type == "f32" else f"(({kind}){bits})"
        if _INTEGER.fullmatch(operand):
            value = int(operand.rstrip("U"), 0)
            bits = f"0x{value & (2**64 - 1):x}ull"
            return f"as_{ptx_type}(({unsigned(ptx_type)}){bits})" if ptx_type[0] == "f" else f"(({kind}){bits})"
        raise UnknownPtx(f"the operand {operand!r} is not known")

    def write(self, operand: str, ptx_type: str, value: str) -> str:
        """The statement that gives a register of thread `t` a value."""
        if operand == "_":
            return f"(void)({value});"
        found = self.register(operand)
        if found is None:
            raise UnknownPtx(f"{operand!r} is written to and is not a register")
        name, stored = found
        if ptx_type == "pred":
            return f"{name}[t] = ({value}) ? 1 : 0;"
        if ptx_type in {"f16", "f32"}:
            return f"{name}[t] = bits_{ptx_type}({value});"
        return f"{name}[t] = ({unsigned(stored)})({c_type(ptx_type)})({value});"

    def several(self, operand: str) -> list[str]:
        """The registers of a vector, or the only one."""
        return [each.strip() for each in operand.strip("{} ").split(",")]

    def address(self, operand: str, ptx_type: str) -> str:
        """The address that brackets hold."""
        found = _ADDRESS.fullmatch(operand)
        if found is None:
            raise UnknownPtx(f"the address {operand!r} is not known")
        offset = int(found.group(2) or "0", 0)
        return f"({c_type(ptx_type)})({self.read(found.group(1), ptx_type)} + (s64){offset})"

    def parameter(self, operand: str) -> int:
        """The number of the kernel's parameter that brackets hold."""
        names = [name for _, name in self._kernel.parameters]
        found = _ADDRESS.fullmatch(operand)
        if found is None or found.group(1) not in names or found.group(2) is not None:
            raise UnknownPtx(f"the parameter {operand!r} is not known")
        return names.index(found.group(1))
