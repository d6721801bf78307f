# SPDX-License-Identifier: Apache-2.0
"""Each hazard is found where there is one, and none where a barrier, a mask or an atomic operation is in its place."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.ptx.fragments import run
from tests.kernels.ptx.program import Hazard, has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C compiler")

# A thread writes its word of shared memory and reads that of thread 63 - t, of the other warp.
ACROSS_WARPS = """
shl.b32 %r10, %r1, 2;
sub.s32 %r11, 252, %r10;
st.shared.b32 [%r10], %r1;
{between}
ld.shared.b32 %r12, [%r11];
st.global.b32 [%rd5], %r12;
"""
# The same with thread t ^ 1, of the same warp.
IN_A_WARP = ACROSS_WARPS.replace("sub.s32 %r11, 252, %r10;", "xor.b32 %r11, %r10, 4;")
# Through global memory: write one's own word, read the next thread's.
IN_GLOBAL = """
st.global.b32 [%rd5], %r1;
{between}
xor.b32 %r10, %r1, 32;
mul.wide.u32 %rd6, %r10, 4;
add.s64 %rd6, %rd2, %rd6;
ld.global.b32 %r11, [%rd6];
{behind}
st.global.b32 [%rd5], %r11;
"""


def outcome(body, folder, **options):
    """The first line of what was found; None if nothing was."""
    try:
        run(body, np.arange(64), folder, **options)
    except Hazard as hazard:
        return str(hazard).splitlines()[1].strip()
    return None


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (ACROSS_WARPS.format(between="bar.sync 0;"), None),
        (ACROSS_WARPS.format(between=""), "race in shared memory"),
        (ACROSS_WARPS.format(between="bar.warp.sync -1;"), "race in shared memory"),
        (IN_A_WARP.format(between="bar.warp.sync -1;"), None),
        (IN_A_WARP.format(between=""), "race in shared memory"),
        (IN_GLOBAL.format(between="bar.sync 0;", behind="bar.sync 0;"), None),
        (IN_GLOBAL.format(between="", behind="bar.sync 0;"), "race in a program"),
        (IN_GLOBAL.format(between="bar.sync 0;", behind=""), "race in a program"),
    ],
)
def test_barriers_order_accesses(body, found, tmp_path):
    seen = outcome(body, tmp_path)

    assert (seen or "").startswith(found or "")
    assert (seen is None) == (found is None)


@pytest.mark.parametrize("programs", [1, 2])
def test_programs_are_ordered_by_nothing(programs, tmp_path):
    """Two programs that write different values to one word race, whatever barriers they have."""
    seen = outcome("bar.sync 0;\nst.global.b32 [%rd5], %r2;\nbar.sync 0;", tmp_path, grid=(programs,))

    assert (seen is None) == (programs == 1)
    if seen:
        assert seen.startswith("race between programs")


@pytest.mark.parametrize(
    ("body", "raced"),
    [
        ("st.global.b32 [%rd2], 7;", False),  # all write the same
        ("st.global.b32 [%rd2], %r1;", True),
        ("atom.global.gpu.acq_rel.max.s32 %r10, [%rd2], %r1;", False),
        ("red.global.add.s32 [%rd2], %r1;", False),
        ("atom.global.gpu.acq_rel.max.s32 %r10, [%rd2], %r1;\nbar.sync 0;\nld.global.b32 %r11, [%rd2];", True),
    ],
)
def test_equal_writes_and_atomic_operations_do_not_race(body, raced, tmp_path):
    assert (outcome(body, tmp_path, grid=(2,)) is not None) == raced


def test_atomic_operations_add_up(tmp_path):
    body = "red.global.add.s32 [%rd2], %r1;\natom.global.gpu.acq_rel.max.s32 %r10, [%rd2+4], %r1;"
    made = run(body, np.zeros(64), tmp_path, grid=(3,))

    assert made[:2].tolist() == [3 * sum(range(64)), 63]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("ld.global.b32 %r10, [%rd4];", None),
        ("ld.global.b32 %r10, [%rd4+4];", "access outside of its tensors"),
        ("ld.global.b32 %r10, [%rd4+-4];", "access outside of its tensors"),
        ("setp.lt.s32 %p1, %r1, 63;\n@%p1 ld.global.b32 %r10, [%rd4+4];", None),
        ("st.global.b32 [%rd5+4], %r1;", "access outside of its tensors"),
        ("st.global.b32 [%rd4], %r1;", "write to read-only memory"),
        ("ld.global.b32 %r10, [%rd1+2];", "misaligned access"),
        ("ld.global.v2.b32 {%r10, %r11}, [%rd1+4];", "misaligned access"),
        ("ld.shared.b32 %r10, [global_smem+1024];", "access outside of its tensors"),
        ("st.shared.b16 [global_smem+1], %rs1;", "misaligned access"),
        ("ld.local.b32 %r10, [%r1+4096];", "misaligned access|access outside of its tensors"),
    ],
)
def test_addresses(body, found, tmp_path):
    seen = outcome(body, tmp_path)

    assert (seen is None) == (found is None)
    if found:
        assert seen.startswith(tuple(found.split("|")))


def test_branches_that_threads_disagree_on_are_refused(tmp_path):
    body = "setp.lt.s32 %p1, %r1, 40;\n@%p1 bra $L_end;\nst.global.b32 [%rd5], %r1;\n$L_end:"

    assert outcome(body, tmp_path).startswith("threads of a program take different branches")


def test_warp_operations_need_all_lanes(tmp_path):
    assert outcome("redux.sync.add.s32 %r10, %r1, 15;", tmp_path).startswith("warp operation with inactive lanes")


@pytest.mark.parametrize("grid", [(0,), (1, 65536), (1, 1, 65536)])
def test_grids_that_no_device_launches_are_refused(grid, tmp_path):
    with pytest.raises(Hazard, match="no device launches a grid"):
        run("", np.zeros(64), tmp_path, grid=grid)
