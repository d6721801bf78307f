# SPDX-License-Identifier: Apache-2.0
"""Instructions that concern several threads: branches, barriers, shuffles and reductions within a warp.

All threads of a program run in lockstep, one instruction after the other. That is a valid schedule only if they all
take the same branches, so a branch that threads disagree on ends the run; so does a warp operation with inactive lanes.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.kernels.ptx.operands import Operands, c_type
from tests.kernels.ptx.syntax import Instruction, UnknownPtx

_SHUFFLES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
_REDUCTIONS = {
    "add": "(u32)all + (u32)one",
    "max": "one > all ? one : all",
    "min": "one < all ? one : all",
    "or": "all | one",
    "and": "all & one",
    "xor": "all ^ one",
}


def label(name: str) -> str:
    """A label of PTX as one of C."""
    return "at_" + name.replace("$", "_")


def _branch(of: Instruction, operands: Operands) -> str:
    target = f"goto {label(of.operands[0])};"
    if of.guard is None:
        return target
    found = operands.register(of.guard)
    if found is None:
        raise UnknownPtx(of.text)
    taken = f"{'!' if of.negated else ''}{found[0]}[0]"
    return f"if (!all_agree({found[0]}, {of.line})) return; if ({taken}) {target}"


def _end(of: Instruction, _operands: Operands) -> str:
    if of.guard is not None:
        raise UnknownPtx(of.text)
    return "return;"


def _barrier(of: Instruction, operands: Operands) -> str:
    if of.guard is not None:
        raise UnknownPtx(of.text)
    if "warp" in of.opcode:
        return f"{_whole_warp(of, operands, of.operands[0])} for (int i = 0; i < WARPS; i++) warp_interval[i]++;"
    if of.operands != ("0",):
        raise UnknownPtx(of.text)
    return "interval++;"


def _whole_warp(of: Instruction, operands: Operands, mask: str) -> str:
    return f"EACH_THREAD if ({operands.read(mask, 'u32')} != 0xffffffffu) {{ partial_warp({of.line}); return; }}"


def _shuffle(of: Instruction, operands: Operands) -> str:
    to, value, by, clamp, mask = of.operands
    if of.guard is not None:
        raise UnknownPtx(of.text)
    made, _, valid = to.partition("|")
    lines = ["u32 from[THREADS], given[THREADS]; u8 valid[THREADS];", _whole_warp(of, operands, mask)]
    lines.append(f"EACH_THREAD from[t] = {operands.read(value, 'u32')};")
    lane = f"shuffle_lane({_SHUFFLES[of.opcode[2]]}, t & 31, {operands.read(by, 'u32')}, {operands.read(clamp, 'u32')}"
    lines.append(f"EACH_THREAD given[t] = from[(t & ~31) + {lane}, &valid[t])];")
    writes = operands.write(made, "b32", "given[t]")
    if valid:
        writes += " " + operands.write(valid, "pred", "valid[t]")
    return " ".join([*lines, f"EACH_THREAD {{ {writes} }}"])


def _reduction(of: Instruction, operands: Operands) -> str:
    to, value, mask = of.operands
    if of.guard is not None:
        raise UnknownPtx(of.text)
    kind = c_type(of.type)
    lines = [f"{kind} reduced[WARPS];", _whole_warp(of, operands, mask)]
    combined = f"{kind} all = reduced[t / 32]; reduced[t / 32] = t % 32 == 0 ? one : {_REDUCTIONS[of.opcode[2]]};"
    lines.append(f"EACH_THREAD {{ {kind} one = {operands.read(value, of.type)}; {combined} }}")
    return " ".join([*lines, f"EACH_THREAD {{ {operands.write(to, of.type, 'reduced[t / 32]')} }}"])


CONTROL: dict[str, Callable[[Instruction, Operands], str]] = {
    "bra": _branch,
    "ret": _end,
    "exit": _end,
    "bar": _barrier,
    "barrier": _barrier,
    "shfl": _shuffle,
    "redux": _reduction,
}
"""The function for each name of an instruction that is executed once for all threads."""
