# SPDX-License-Identifier: Apache-2.0
"""What the parser makes of PTX, and what it refuses."""

from __future__ import annotations

import pytest
from tests.kernels.ptx.fragments import fragment
from tests.kernels.ptx.syntax import Instruction, Label, UnknownPtx, parse, split_operands
from tests.kernels.ptx.translator import translate

BODY = """
.loc	1 55 12                         // triton.py:55:12
$L__BB0_1:
@!%p1 ld.global.v2.b32 { %r3, %r4 }, [ %rd4 + -8 ];
{ .reg .b32 tmp; mov.b32 tmp, 0x3; }
"""


def test_an_entry_function():
    kernel = parse(fragment(BODY))

    assert kernel.name == "fragment"
    assert kernel.parameters == (("u64", "fragment_param_0"), ("u64", "fragment_param_1"))
    assert kernel.registers == {"p": "pred", "rs": "b16", "r": "b32", "rd": "b64", "tmp": "b32"}


def test_instructions_have_guards_operands_and_places():
    kernel = parse(fragment(BODY))
    at = kernel.body.index(Label("$L__BB0_1"))
    load, move = kernel.body[at + 1 : at + 3]

    assert isinstance(load, Instruction)
    assert (load.guard, load.negated, load.opcode) == ("%p1", True, ("ld", "global", "v2", "b32"))
    assert load.operands == ("{ %r3, %r4 }", "[ %rd4 + -8 ]")
    assert load.source == "triton.py:55"
    assert fragment(BODY).splitlines()[load.line - 1].strip().startswith("@!%p1 ld.global")
    assert isinstance(move, Instruction)
    assert move.operands == ("tmp", "0x3")


def test_operands_are_split_outside_of_brackets():
    assert split_operands("{%r1, %r2}, [%rd1+4], 7") == ("{%r1, %r2}", "[%rd1+4]", "7")
    assert split_operands("") == ()


@pytest.mark.parametrize(
    "instruction",
    [
        "mma.sync.aligned.m16n8k16 %r3, %r4, %r5;",
        "add.sat.s32 %r3, %r4, %rs_unknown;",
        "add.ftz.f32 %r3, %r4, %r5;",
        "cvt.rn.satfinite.f32.f32 %r3, %r4;",
        "ld.global.nc.frob.b32 %r3, [%rd1];",
        "mov.b128 %r3, %r4;",
        "@%p1 bar.sync 0;",
    ],
)
def test_what_is_not_known_is_refused(instruction):
    """An instruction that was guessed at would prove nothing."""
    with pytest.raises(UnknownPtx):
        translate(parse(fragment(instruction)), 32, 0)


def test_text_without_a_kernel_is_refused():
    with pytest.raises(UnknownPtx, match=r"no \.visible \.entry"):
        parse(".version 8.0")
