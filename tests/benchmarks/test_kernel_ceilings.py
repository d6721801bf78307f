# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the computed ceilings: which instructions count how often, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from benchmarks._kernels.listing import Listing
from benchmarks._kernels.roofline import DEVICES, RATES, ceiling, executed, pipe_of

# Two instructions, a loop of four around a loop of two, and an end.
CODE = Listing(
    32, 0, 0, ("MOV", "LDG.E", "IADD3", "IMAD.WIDE", "SHFL.IDX", "BRA", "I2F", "BRA", "EXIT"), ((2, 7), (3, 5))
)
WORK = SimpleNamespace(kernel="some", programs=10, turns=(100, 1000), n_bytes=10**6)


@pytest.mark.parametrize(
    ("opcode", "pipe"),
    [
        ("LOP3.LUT", "integer"),
        ("I2FP.F32.S32", "integer"),
        ("IMAD.X", "multiply"),
        ("LDG.E.U8", "memory"),
        ("STS.64", "memory"),
        ("I2F", "conversion"),
        ("UIADD3", "uniform"),
        ("BAR.SYNC.DEFER_BLOCKING", "control"),
    ],
)
def test_instructions_have_their_pipes(opcode, pipe):
    assert pipe_of(opcode) == pipe


def test_loops_count_as_often_as_they_turn():
    """Straight code once a program, an inner loop by its own turns; all of it for each warp."""
    counts = executed(CODE, 2, WORK)

    assert counts["integer"] == 2 * (10 + 100)
    assert counts["memory"] == 2 * (10 + 1000)
    assert counts["multiply"] == 2 * 1000
    assert counts["conversion"] == 2 * 100
    assert counts["issue"] == 2 * (3 * 10 + 3 * 100 + 3 * 1000)
    assert "control" not in counts


def test_loops_that_the_compiler_made_are_not_guessed_at():
    with pytest.raises(ValueError, match="2 loops in its code and 1"):
        executed(CODE, 1, SimpleNamespace(kernel="some", programs=1, turns=(1,), n_bytes=0))


def test_the_slowest_of_pipes_and_memory_bounds_a_kernel():
    device = replace(DEVICES[0], multiprocessors=1, clock_ghz=1.0, memory_gbs=1.0, bus_gbs=2.0)
    batch = SimpleNamespace(pixels=1000, n_bytes=500)
    work = SimpleNamespace(kernel="some", programs=10, turns=(100, 1000), n_bytes=1000)
    found = ceiling(device, batch, [work], {"some": (CODE, 2)})
    [kernel] = found["kernels"]

    assert kernel["bound"] == "memory"
    assert kernel["picoseconds_per_pixel"] == pytest.approx(1e12 * 2020 / RATES["memory"] / 1e9 / 1000)
    assert found["compressed_gbs"] == pytest.approx(0.5 * found["gigapixels_per_second"])
    assert found["times_bus"] == pytest.approx(found["compressed_gbs"] / 2)
    slow_memory = ceiling(replace(device, memory_gbs=0.001), batch, [work], {"some": (CODE, 2)})
    assert slow_memory["kernels"][0]["bound"] == "bandwidth"


def test_the_bus_is_counted_as_its_standard_does():
    """16 lanes of 16 gigatransfers, of which 128 bits in 130 are data."""
    assert DEVICES[0].bus_gbs == pytest.approx(31.508, abs=0.001)
