# SPDX-License-Identifier: Apache-2.0
"""Which barriers are proved redundant: those between accesses that cannot conflict, on every path."""

from __future__ import annotations

import pytest
from tests.kernels.ptx.barriers import redundant_barriers
from tests.kernels.ptx.fragments import fragment
from tests.kernels.ptx.syntax import parse

STORE, LOAD = "st.shared.b32 [%r1], %r2;", "ld.shared.b32 %r3, [%r1];"
LOOP = ["$L__loop:", "bar.sync 0;", STORE, "bar.sync 0;", LOAD, "@%p1 bra $L__loop;"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([STORE, "bar.sync 0;", LOAD], [False]),
        ([LOAD, "bar.sync 0;", STORE], [False]),
        ([LOAD, "bar.sync 0;", LOAD], [True]),
        ([STORE, "bar.sync 0;", "ld.global.b32 %r3, [%rd4];"], [True]),
        ([STORE, "bar.sync 0;", "bar.sync 0;", LOAD], [True, True]),
        ([STORE, "bar.sync 0;", "atom.global.max.s32 %r3, [%rd5], %r2;", "bar.sync 0;"], [True, True]),
        (LOOP, [False, False]),
        ([*LOOP[:-1]], [True, False]),
    ],
    ids=["write read", "read write", "reads", "other memory", "two barriers", "atomic", "loop", "no loop"],
)
def test_a_barrier_between_accesses(body, expected):
    assert list(redundant_barriers(parse(fragment("\n".join(body)))).values()) == expected
