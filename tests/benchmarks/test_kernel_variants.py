# SPDX-License-Identifier: Apache-2.0
"""Compiling ahead of time: kernels compile for devices that are not there, and what they cost is read correctly.

`make kernels` compiles all of them for all targets; here it is one, in a process that does not interpret.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from benchmarks._kernels.listing import amd_listing, nvidia_listing

COMPILE = """
from benchmarks._kernels import listing as listings, variants
for name in ("sm_80", "gfx942"):
    target = variants.TARGETS[name]
    variant = next(each for each in variants.variants(target) if each.name == "packed wave, 8 bit")
    found = listings.listing(variant.compile(target))
    print(name, found.registers, found.spills, found.shared_bytes, len(found.opcodes), len(found.loops))
"""

SASS = """
        .text.some_kernel:
.L_x_0:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/              @!P4 LDG.E.U8 R15, [R12.64+0x1] ;
.L_x_2:
        /*0020*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0030*/               @P0 BRA `(.L_x_2) ;
        /*0040*/             @!UP1 BRA.U UP1, `(.L_x_1) ;
        /*0050*/                   EXIT ;
.L_x_3:
        /*0060*/                   BRA `(.L_x_3);
        /*0070*/                   NOP;
"""
USAGE = " Function some_kernel:\n  REG:35 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:424 TEXTURE:0"
AMDGCN = """
	v_mov_b32_e32 v1, 0
	s_waitcnt lgkmcnt(0)
	global_store_byte v1, v2, s[0:1]
	; a remark
    .sgpr_spill_count: {sgprs}
    .vgpr_count:     31
    .vgpr_spill_count: {vgprs}
"""


@pytest.mark.slow
def test_a_kernel_compiles_for_devices_that_are_not_there(tmp_path):
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    nvidia, amd = (line.split() for line in done.stdout.splitlines())
    assert nvidia[0] == "sm_80"
    assert nvidia[2:4] == amd[2:4] == ["0", "0"], "no spills, no shared memory"
    assert nvidia[5] == "1", "the steps of the wave are the only loop"
    assert 0 < int(nvidia[1]) < 64
    assert 0 < int(amd[1]) < 64


def test_a_listing_of_nvidia():
    found = nvidia_listing(USAGE, SASS, 512)

    assert (found.registers, found.spills, found.shared_bytes) == (35, 0, 512)
    assert found.opcodes == ("MOV", "LDG.E.U8", "IADD3", "BRA", "BRA.U", "EXIT", "BRA")
    assert found.loops == ((1, 4), (2, 3))


def test_spills_are_seen():
    code = SASS.replace("MOV R1, c[0x0][0x28]", "STL.64 [R1+0x18], R30").replace(
        "IADD3 R2, R2, 0x1, RZ", "LDL.LU R2, [R1]"
    )

    assert nvidia_listing(USAGE, code, 0).spills == 2
    assert amd_listing(AMDGCN.format(sgprs=1, vgprs=2), 0).spills == 3


def test_a_listing_of_amd():
    found = amd_listing(AMDGCN.format(sgprs=0, vgprs=0), 16)

    assert (found.registers, found.spills, found.shared_bytes) == (31, 0, 16)
    assert found.opcodes == ("v_mov_b32_e32", "s_waitcnt", "global_store_byte")


def test_what_cannot_be_read_is_an_error():
    with pytest.raises(ValueError, match="registers"):
        nvidia_listing("", SASS, 0)
    with pytest.raises(ValueError, match="vgpr_count"):
        amd_listing("", 0)
