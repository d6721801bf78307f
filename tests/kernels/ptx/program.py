# SPDX-License-Identifier: Apache-2.0
"""A compiled kernel as a program of the CPU: translate its PTX to C, compile that, and run it with shadow memory."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tests.kernels.ptx.syntax import Instruction, parse
from tests.kernels.ptx.translator import RUNTIME, translate

# As in the enumeration of shadow.h.
KINDS = (
    "access outside of its tensors",
    "misaligned access",
    "write to read-only memory",
    "race in a program",
    "race between programs",
    "race in shared memory",
    "threads of a program take different branches",
    "warp operation with inactive lanes",
)
_KEPT = 16
_HEADERS = [RUNTIME.parent / name for name in ("runtime.h", "shadow.h", "launch.h")]


class Hazard(AssertionError):
    """A kernel did what a device need not forgive."""


class Memory(NamedTuple):
    """Addresses that a launch may use."""

    begin: int
    n_bytes: int
    writable: bool


class _Range(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("cells", ctypes.c_void_p),
        ("writable", ctypes.c_int64),
    )


class _Finding(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("kind", "line", "program", "thread", "other", "address"))


class _Report(ctypes.Structure):
    _fields_ = (
        ("n_found", ctypes.c_int64),
        ("findings", _Finding * _KEPT),
    )


def has_compiler() -> bool:
    """Whether there is a C compiler to build programs with."""
    return _compiler() is not None


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc"))


class Program:
    """A kernel, ready to run. Not for several threads at once: its registers are static memory of the library."""

    def __init__(self, ptx: str, *, threads: int, shared_bytes: int, folder: Path) -> None:
        kernel = parse(ptx)
        self.name = kernel.name
        self._n_arguments = len(kernel.parameters)
        self._instructions = {part.line: part for part in kernel.body if isinstance(part, Instruction)}
        self._library = ctypes.CDLL(str(_build(translate(kernel, threads, shared_bytes), folder)))
        self._library.cell_bytes.restype = ctypes.c_int64
        self._cell_bytes = self._library.cell_bytes()

    def run(
        self,
        grid: Sequence[int],
        arguments: Sequence[int],
        memory: Sequence[Memory],
        *,
        backwards: bool = False,
        fill: int = 0xA5,
    ) -> None:
        """Run all programs of a grid.

        Args:
            grid: Programs along each of up to three axes.
            arguments: The parameters that are not compile-time constants; pointers as addresses.
            memory: All that may be accessed.
            backwards: Whether the last program is run first.
            fill: What shared and local memory hold before a program writes to them.

        Raises:
            Hazard: A program accessed other memory, raced, or diverged.

        """
        extents = [*grid, 1, 1][:3]
        if any(not 0 < extent <= limit for extent, limit in zip(extents, (2**31 - 1, 65535, 65535), strict=True)):
            raise Hazard(f"{self.name}: no device launches a grid of {tuple(grid)}: y and z end at 65535")
        owned = [each for each in sorted(memory) if each.n_bytes]
        cells = [np.empty(each.n_bytes * self._cell_bytes if each.writable else 0, np.uint8) for each in owned]
        ranges = (_Range * len(owned))(
            *(
                _Range(each.begin, each.begin + each.n_bytes, shadow.ctypes.data, each.writable)
                for each, shadow in zip(owned, cells, strict=True)
            )
        )
        # Triton's launcher passes a few pointers of its own behind the arguments; kernels without scratch ignore them.
        values = [*arguments, *[0] * (self._n_arguments - len(arguments))]
        report = _Report()
        self._library.run_kernel(
            (ctypes.c_int32 * 3)(*extents),
            (ctypes.c_uint64 * len(values))(*(value & (2**64 - 1) for value in values)),
            ranges,
            ctypes.c_int64(len(owned)),
            int(backwards),
            ctypes.c_uint8(fill),
            ctypes.byref(report),
        )
        if report.n_found:
            raise Hazard(self._words(report))

    def _words(self, report: _Report) -> str:
        lines = [f"{self.name}: {report.n_found} hazards"]
        for finding in report.findings[: min(report.n_found, _KEPT)]:
            instruction = self._instructions[finding.line]
            lines.append(
                f"{KINDS[finding.kind]} at {instruction.source or 'line'} (PTX line {finding.line}: "
                f"{instruction.text}): program {finding.program}, thread {finding.thread}, "
                f"other or size {finding.other}, address {finding.address:#x}"
            )
        return "\n  ".join(lines)


def _build(code: str, folder: Path) -> Path:
    """Compile C to a library, or take the one that was compiled from the same text before."""
    key = hashlib.sha256(code.encode() + b"".join(header.read_bytes() for header in _HEADERS)).hexdigest()[:24]
    library = folder / f"{key}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    source, made = folder / f"{key}.c", folder / f"{key}.{os.getpid()}.so"
    source.write_text(code)
    options = ["-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-w", "-shared", "-fPIC"]
    command = [str(_compiler()), *options, "-I", str(RUNTIME.parent), "-o", str(made), str(source), "-lm"]
    subprocess.run(command, check=True)
    made.replace(library)
    return library
