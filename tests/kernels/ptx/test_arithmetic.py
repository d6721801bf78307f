# SPDX-License-Identifier: Apache-2.0
"""Instructions of one thread, executed: results by the PTX manual, computed here in plain Python or NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.ptx.fragments import run
from tests.kernels.ptx.program import has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C compiler")


def f32(value):
    return int(np.float32(value).view(np.uint32))


def f16(value):
    return int(np.float16(value).view(np.uint16))


# Instructions that leave their result in %r20, and that result. %r10 = 0xFFFFFFF9 (-7), %r11 = 3, %r12 = 0x12345678,
# %r13 = 1.5, %r14 = NaN, %rs1 = 0xFFFE (-2), %rd9 = 0x1_0000_0005.
CASES = {
    "add.s32 %r20, %r10, %r11;": -4,
    "sub.s32 %r20, %r11, %r10;": 10,
    "mul.lo.s32 %r20, %r10, %r10;": 49,
    "mul.hi.u32 %r20, %r10, %r10;": (0xFFFFFFF9**2) >> 32,
    "mul.hi.s32 %r20, %r10, %r11;": -1,
    "mul.wide.s32 %rd10, %r10, %r11; shr.s64 %rd10, %rd10, 32; cvt.u32.u64 %r20, %rd10;": -1,
    "mul.wide.u32 %rd10, %r10, %r11; shr.u64 %rd10, %rd10, 32; cvt.u32.u64 %r20, %rd10;": 2,
    "mul.wide.u16 %r20, %rs1, %rs1;": 0xFFFE**2,
    "mad.lo.s32 %r20, %r10, %r11, 100;": 79,
    "mad.wide.s32 %rd10, %r10, 4, %rd9; cvt.u32.u64 %r20, %rd10;": 5 - 28,
    "div.s32 %r20, %r10, %r11;": -2,
    "rem.s32 %r20, %r10, %r11;": -1,
    "div.u32 %r20, %r10, %r11;": 0xFFFFFFF9 // 3,
    "neg.s32 %r20, %r11;": -3,
    "abs.s32 %r20, %r10;": 7,
    "min.s32 %r20, %r10, %r11;": -7,
    "min.u32 %r20, %r10, %r11;": 3,
    "max.s32 %r20, %r10, %r11;": 3,
    "not.b32 %r20, %r12;": ~0x12345678,
    "xor.b32 %r20, %r12, 0xFF;": 0x12345678 ^ 0xFF,
    "shl.b32 %r20, %r12, 32;": 0,
    "shl.b32 %r20, %r12, 4;": 0x23456780,
    "shr.u32 %r20, %r10, 28;": 15,
    "shr.s32 %r20, %r10, 28;": -1,
    "shr.s32 %r20, %r10, 99;": -1,
    "shf.l.wrap.b32 %r20, %r12, %r11, 36;": 0x31,
    "shf.r.clamp.b32 %r20, %r12, %r11, 8;": 0x03123456,
    "bfe.u32 %r20, %r12, 8, 8;": 0x56,
    "bfe.s32 %r20, %r10, 0, 3;": 1,
    "bfe.s32 %r20, %r10, 3, 8;": -1,
    "bfi.b32 %r20, 0xAB, %r12, 8, 8;": 0x1234AB78,
    "prmt.b32 %r20, %r12, %r11, 0x0123;": 0x78563412,
    "prmt.b32 %r20, %r12, %r10, 0x7F40;": 0xFFFFF978,
    "lop3.b32 %r20, %r12, 0xFF, %r11, 0xEA;": (0x12345678 & 0xFF) | 3,
    "popc.b32 %r20, %r12;": 13,
    "clz.b32 %r20, %r12;": 3,
    "setp.lt.s32 %p1, %r10, %r11; selp.b32 %r20, 1, 2, %p1;": 1,
    "setp.lt.u32 %p1, %r10, %r11; selp.b32 %r20, 1, 2, %p1;": 2,
    "setp.lt.f32 %p1, %r14, %r13; selp.b32 %r20, 1, 2, %p1;": 2,
    "setp.ltu.f32 %p1, %r14, %r13; selp.b32 %r20, 1, 2, %p1;": 1,
    "setp.ne.f32 %p1, %r14, %r13; selp.b32 %r20, 1, 2, %p1;": 2,
    "setp.gt.s32 %p1, %r11, 0; setp.lt.and.s32 %p2, %r10, 0, %p1; selp.b32 %r20, 1, 2, %p2;": 1,
    "setp.gt.s32 %p1, %r11, 0; not.pred %p2, %p1; selp.b32 %r20, 1, 2, %p2;": 2,
    "cvt.s32.s16 %r20, %rs1;": -2,
    "cvt.u32.u16 %r20, %rs1;": 0xFFFE,
    "cvt.s32.s8 %r20, %r12;": 0x78,
    "cvt.u16.u32 %rs2, %r12; cvt.u32.u16 %r20, %rs2;": 0x5678,
    "cvt.s64.s32 %rd10, %r10; shr.u64 %rd10, %rd10, 60; cvt.u32.u64 %r20, %rd10;": 15,
    "cvt.rn.f32.s32 %r20, %r10;": f32(-7),
    "cvt.rn.f32.u32 %r20, %r10;": f32(0xFFFFFFF9),
    "cvt.rzi.s32.f32 %r20, %r13;": 1,
    "cvt.rni.s32.f32 %r20, %r13;": 2,
    "cvt.rzi.s32.f32 %r20, %r14;": 0,
    "cvt.rzi.u32.f32 %r20, 0fC0400000;": 0,
    "cvt.rmi.ftz.f32.f32 %r20, 0fBFC00000;": f32(-2),
    "cvt.rmi.ftz.f32.f32 %r20, 0f80000001;": f32(-0.0),
    "cvt.rn.f16.f32 %rs2, 0f3DCCCCCD; cvt.u32.u16 %r20, %rs2;": f16(0.1),
    "add.rn.f32 %r20, %r13, 0f3DCCCCCD;": f32(np.float32(1.5) + np.float32(0.1)),
    "mul.rn.f32 %r20, 0f3DCCCCCD, 0f3DCCCCCD;": f32(np.float32(0.1) * np.float32(0.1)),
    "sub.rn.f32 %r20, %r13, 0f3DCCCCCD;": f32(np.float32(1.5) - np.float32(0.1)),
    "max.f32 %r20, %r14, %r13;": f32(1.5),
    "abs.f32 %r20, 0fBFC00000;": f32(1.5),
    "mov.b64 %rd10, {%r11, %r10}; mov.b64 {%r21, %r20}, %rd10;": -7,
    "mov.b32 %r20, {%rs1, %rs1};": 0xFFFEFFFE,
    "mov.u32 %r20, 7; @%p0 mov.u32 %r20, 8; @!%p0 mov.u32 %r20, 9;": 9,
    "mov.u32 %r20, %nctaid.x;": 1,
    "mov.u32 %r20, %ntid.x;": 64,
}
SETTING = """
mov.b32 %r10, 0xFFFFFFF9;
mov.b32 %r11, 3;
mov.b32 %r12, 0x12345678;
mov.b32 %r13, 0f3FC00000;
mov.b32 %r14, 0f7FC00000;
mov.u16 %rs1, -2;
mov.b64 %rd9, 4294967301;
setp.ne.s32 %p0, 0, 0;
"""


def test_results_are_those_of_the_manual(tmp_path):
    """All in one kernel, because compiling C takes longest."""
    body = SETTING + "".join(f"{case}\nst.global.b32 [%rd5+{256 * i}], %r20;\n" for i, case in enumerate(CASES))
    made = run(body, np.zeros(64), tmp_path, words=64 * len(CASES)).reshape(len(CASES), 64)
    expected = {case: value & 0xFFFFFFFF for case, value in CASES.items()}

    assert dict(zip(CASES, made[:, 5].tolist(), strict=True)) == expected
    assert (made == made[:, :1]).all(), "all threads compute the same"


def test_lanes_of_a_warp(tmp_path):
    """Shuffles and reductions stay within a warp of 32."""
    body = """
    ld.global.b32 %r10, [%rd4];
    shfl.sync.up.b32 %r11, %r10, 1, 0, -1;
    shfl.sync.bfly.b32 %r12, %r10, 3, 31, -1;
    shfl.sync.idx.b32 %r13|%p1, %r10, 40, 31, -1;
    shfl.sync.down.b32 %r14|%p2, %r10, 30, 31, -1;
    redux.sync.add.s32 %r15, %r10, -1;
    redux.sync.max.s32 %r16, %r10, -1;
    selp.b32 %r17, 1, 0, %p2;
    st.global.b32 [%rd5], %r11;
    st.global.b32 [%rd5+256], %r12;
    st.global.b32 [%rd5+512], %r13;
    st.global.b32 [%rd5+768], %r14;
    st.global.b32 [%rd5+1024], %r15;
    st.global.b32 [%rd5+1280], %r16;
    st.global.b32 [%rd5+1536], %r17;
    """
    given = np.random.default_rng(0).integers(0, 1000, 64).astype(np.uint32)
    up, butterfly, index, down, total, most, valid = run(body, given, tmp_path, words=7 * 64).reshape(7, 64)
    lane, first = np.arange(64) % 32, np.arange(64) // 32 * 32

    assert np.array_equal(up, given[first + np.maximum(lane - 1, 0)])
    assert np.array_equal(butterfly, given[first + (lane ^ 3)])
    assert np.array_equal(index, given[first + 40 % 32])
    assert np.array_equal(down, given[first + np.where(lane + 30 < 32, lane + 30, lane)])
    assert np.array_equal(valid, (lane + 30 < 32).astype(np.uint32))
    assert np.array_equal(total, given.reshape(2, 32).sum(1).repeat(32))
    assert np.array_equal(most, given.reshape(2, 32).max(1).repeat(32))


def test_matrices_go_through_shared_memory(tmp_path):
    """What `stmatrix` stores with .trans, `ldmatrix` reads transposed: lane l holds two columns of row l / 4."""
    body = """
    ld.global.b32 %r10, [%rd4];
    and.b32 %r11, %r1, 7;
    shl.b32 %r12, %r11, 4;
    shr.u32 %r13, %r1, 5;
    shl.b32 %r13, %r13, 7;
    add.s32 %r12, %r12, %r13;
    stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r12], {%r10};
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r14}, [%r12];
    st.global.b32 [%rd5], %r14;
    """
    given = np.random.default_rng(1).integers(0, 2**32, 64).astype(np.uint32)
    made = run(body, given, tmp_path)
    matrices = given.view(np.uint16).reshape(2, 8, 8)

    assert np.array_equal(made.view(np.uint16).reshape(2, 8, 8), matrices.transpose(0, 2, 1))


def test_loops_and_local_memory(tmp_path):
    """A loop that all threads take equally often, and a byte at a time through each thread's own memory."""
    body = """
    .local .align 4 .b8 	__local_depot0[4];
    .reg .b64 	%SP;
    mov.b64 %SP, __local_depot0;
    cvta.local.u64 %SP, %SP;
    mov.u32 %r10, 0;
    mov.u32 %r11, 0;
    $L_again:
    add.s32 %r11, %r11, %r1;
    add.s32 %r10, %r10, 1;
    setp.lt.s32 %p1, %r10, 5;
    @%p1 bra $L_again;
    st.b32 [%SP], %r11;
    ld.local.b8 %rs1, [%r10+-5];
    cvt.u32.u16 %r12, %rs1;
    st.global.b32 [%rd5], %r12;
    """
    made = run(body, np.zeros(64), tmp_path)

    assert np.array_equal(made, (5 * np.arange(64)) & 255)
