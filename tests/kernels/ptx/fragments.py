# SPDX-License-Identifier: Apache-2.0
"""Small kernels written by hand, for tests of the executor itself: a few instructions between fixed ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from tests.kernels.ptx.program import Memory, Program

_KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry fragment(
	.param .u64 .ptr .global .align 1 fragment_param_0,
	.param .u64 .ptr .global .align 1 fragment_param_1
)
.reqntid 64
{{
	.reg .pred 	%p<8>;
	.reg .b16 	%rs<16>;
	.reg .b32 	%r<32>;
	.reg .b64 	%rd<16>;
	ld.param.b64 	%rd1, [fragment_param_0];  // what is read
	ld.param.b64 	%rd2, [fragment_param_1];  // what is written
	mov.u32 	%r1, %tid.x;
	mov.u32 	%r2, %ctaid.x;
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd1, %rd3;  // the thread's own word of either
	add.s64 	%rd5, %rd2, %rd3;
{body}
	ret;
}}
"""


def fragment(body: str) -> str:
    """The PTX of a kernel with these instructions; `%r1` is the thread, `%r2` the program."""
    lines = [line.strip() for line in body.strip().splitlines()]
    return _KERNEL.format(body="\n".join(line if line.endswith(":") else "\t" + line for line in lines))


def run(
    body: str, given: npt.NDArray[np.uint32], folder: Path, *, grid: tuple[int, ...] = (1,), words: int = 64
) -> npt.NDArray[np.uint32]:
    """Run a fragment that reads `given` and writes so many words; gives what it wrote, 0 where it wrote nothing."""
    program = Program(fragment(body), threads=64, shared_bytes=1024, folder=folder)
    given, made = np.ascontiguousarray(given, np.uint32), np.zeros(words, np.uint32)
    memory = [Memory(given.ctypes.data, given.nbytes, False), Memory(made.ctypes.data, made.nbytes, True)]
    program.run(grid, [given.ctypes.data, made.ctypes.data], memory)
    return made
