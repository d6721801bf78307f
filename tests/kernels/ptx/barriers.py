# SPDX-License-Identifier: Apache-2.0
"""Which barriers of a compiled kernel are redundant: proved from the control flow, without running it.

A barrier orders the accesses that can come just before it, after the previous barrier, and those that can come just
after it, before the next one. If no two of these conflict, the kernel needs the barrier for nothing: Triton emits such
barriers around atomic operations, and in front of a reduction whose shared memory was not used before. Two accesses
conflict if they are to the same kind of memory and one of them writes. Atomic operations conflict with nothing here:
the executor reports a plain access to what they write, whether a barrier lies between or not.
"""

from __future__ import annotations

from tests.kernels.ptx.syntax import Instruction, Kernel, Label

Access = tuple[str, bool]
"""The kind of memory, and whether it is written."""
_BARRIERS = {"bar", "barrier"}


def redundant_barriers(kernel: Kernel) -> dict[int, bool]:
    """For the PTX line of each barrier of a program, whether it is redundant as long as the others are there."""
    body = kernel.body
    after = [_successors(body, at) for at in range(len(body))]
    before: list[list[int]] = [[] for _ in body]
    for at, following in enumerate(after):
        for each in following:
            before[each].append(at)
    return {
        part.line: not _conflict(_reach(body, before, at), _reach(body, after, at))
        for at, part in enumerate(body)
        if isinstance(part, Instruction) and part.name in _BARRIERS
    }


def _successors(body: tuple[Label | Instruction, ...], at: int) -> list[int]:
    part = body[at]
    following = [at + 1] if at + 1 < len(body) else []
    if isinstance(part, Label) or part.name not in {"bra", "ret", "exit"}:
        return following
    if part.name != "bra":
        return []
    target = body.index(Label(part.operands[0]))
    return [target, *(following if part.guard is not None else [])]


def _reach(body: tuple[Label | Instruction, ...], edges: list[list[int]], start: int) -> set[Access]:
    """The accesses on the paths from a barrier along these edges, up to the next barrier."""
    found: set[Access] = set()
    seen: set[int] = set()
    waiting = list(edges[start])
    while waiting:
        at = waiting.pop()
        part = body[at]
        if at in seen or (isinstance(part, Instruction) and part.name in _BARRIERS):
            continue
        seen.add(at)
        if isinstance(part, Instruction) and (access := _access(part)):
            found.add(access)
        waiting += edges[at]
    return found


def _access(part: Instruction) -> Access | None:
    if part.name not in {"ld", "st", "ldmatrix", "stmatrix"}:
        return None
    memory = "shared" if any(each.startswith("shared") for each in part.opcode) else part.opcode[1]
    return None if memory in {"param", "local"} else (memory, part.name.startswith("st"))


def _conflict(some: set[Access], others: set[Access]) -> bool:
    return any(a == b and (first or second) for a, first in some for b, second in others)
