# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import"
"""What a compiled kernel needs: registers, spills, shared memory, and its instructions with their loops."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TOOLS = Path("backends") / "nvidia" / "bin"  # in Triton's own folder
_LABEL = re.compile(r"^(\.L\w+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
_AMD_INSTRUCTION = re.compile(r"^\s+([vs]_\w+|ds_\w+|global_\w+|flat_\w+|buffer_\w+|scratch_\w+)")


@dataclass(frozen=True)
class Listing:
    """The parts of a kernel's machine code that determine its cost."""

    registers: int
    """Per thread."""
    spills: int
    """On NVIDIA GPUs the loads and stores of spilled registers, on AMD GPUs the spilled registers."""
    shared_bytes: int
    """Per program."""
    opcodes: tuple[str, ...]
    loops: tuple[tuple[int, int], ...] = field(default=())
    """The first and the last instruction of each loop, ordered by the first; not available for AMD GPUs."""


def listing(compiled: Any) -> Listing:
    """Read the result of `Variant.compile`."""
    if "cubin" in compiled.asm:
        return nvidia_listing(*_dump(compiled.asm["cubin"]), compiled.metadata.shared)
    return amd_listing(compiled.asm["amdgcn"], compiled.metadata.shared)


def nvidia_listing(usage: str, code: str, shared_bytes: int) -> Listing:
    """Parse the output of `cuobjdump -res-usage` and `nvdisasm -c`."""
    used = _USAGE.search(usage)
    if used is None:
        raise ValueError(f"cuobjdump must print the number of registers; got {usage!r}")
    labels: dict[str, int] = {}
    opcodes: list[str] = []
    jumps: list[tuple[int, str]] = []
    for line in code.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(opcodes)
        elif (instruction := _INSTRUCTION.match(line)) and instruction[1] != "NOP":
            if (target := _TARGET.search(instruction[2])) and instruction[1].startswith("BRA"):
                jumps.append((len(opcodes), target[1]))
            opcodes.append(instruction[1])
    # The code ends with a jump to itself, which is never reached.
    loops = sorted((labels[to], at) for at, to in jumps if labels[to] < at)
    spills = sum(opcode.startswith(("LDL", "STL")) for opcode in opcodes)
    return Listing(int(used[1]), spills, shared_bytes, tuple(opcodes), tuple(loops))


def amd_listing(code: str, shared_bytes: int) -> Listing:
    """Parse the assembly, which ends with the numbers of registers."""
    counts = {}
    for name in ("vgpr_count", "vgpr_spill_count", "sgpr_spill_count"):
        found = re.search(rf"\.{name}:\s+(\d+)", code)
        if found is None:
            raise ValueError(f"the assembly must state its {name}")
        counts[name] = int(found[1])
    opcodes = tuple(found[1] for line in code.splitlines() if (found := _AMD_INSTRUCTION.match(line)))
    return Listing(counts["vgpr_count"], counts["vgpr_spill_count"] + counts["sgpr_spill_count"], shared_bytes, opcodes)


def _dump(cubin: bytes) -> tuple[str, str]:
    import triton  # noqa: PLC0415 - the parsers above need none

    tools = Path(triton.__file__).parent / _TOOLS
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        commands = [tools / "cuobjdump", "-res-usage"], [tools / "nvdisasm", "-c"]
        usage, code = (
            subprocess.run([*map(str, command), file.name], check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own file
            for command in commands
        )
    return usage, code
