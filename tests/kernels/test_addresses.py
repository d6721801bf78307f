# SPDX-License-Identifier: Apache-2.0
"""The check of addresses, checked: a kernel that is careless on purpose is caught, and one that is not is not."""

from __future__ import annotations

import pytest
import torch
from tests.kernels import interpreter
from tests.kernels.devices import HAS_GPU

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.skipif(HAS_GPU, reason="addresses are checked in the interpreter")


@triton.jit
def copy_kernel(source, out, n_read, n_written):
    i = tl.arange(0, 8)
    tl.store(out + i, tl.load(source + i, mask=i < n_read, other=0), mask=i < n_written)


@triton.jit
def count_kernel(status, place, n):
    tl.atomic_max(status + place, 1, mask=n > 0)


@pytest.fixture
def memory():
    """Eight elements, of which five belong to the kernel: what lies behind is there, and none of its business."""
    return torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)


def copy(memory, n_read, n_written):
    source, out = memory
    ranges = interpreter.Ranges()
    ranges.allow(source[:5])
    ranges.allow(out[:5], write=True)
    with interpreter.checked(ranges):
        copy_kernel[(1,)](source, out, n_read, n_written)
    return ranges


def test_what_is_masked_may_point_anywhere(memory):
    assert copy(memory, 5, 5).checked == 10


@pytest.mark.parametrize(("n_read", "n_written"), [(6, 5), (5, 6)])
def test_a_load_or_a_store_too_far_is_caught(n_read, n_written, memory):
    with pytest.raises(Exception, match="1 of 6 addresses are out of range"):
        copy(memory, n_read, n_written)


def test_what_may_be_read_may_not_be_written(memory):
    ranges = interpreter.Ranges()
    ranges.allow(memory[0], write=True)
    ranges.allow(memory[1])
    with interpreter.checked(ranges), pytest.raises(Exception, match="out of range"):
        copy_kernel[(1,)](memory[0], memory[1], 5, 5)


def test_an_atomic_operation_too_far_is_caught(memory):
    ranges = interpreter.Ranges()
    ranges.allow(memory[0][:5], write=True)
    with interpreter.checked(ranges):
        count_kernel[(1,)](memory[0], 4, 1)
        count_kernel[(1,)](memory[0], 5, 0)
    with interpreter.checked(ranges), pytest.raises(Exception, match="out of range"):
        count_kernel[(1,)](memory[0], 5, 1)

    assert memory[0].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
