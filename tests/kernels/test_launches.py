# SPDX-License-Identifier: Apache-2.0
"""Launches are few and as many for one small image as for many large ones, and nothing waits for the device between."""

from __future__ import annotations

import pytest
import torch
from tests.adversarial import specimens
from tests.codec.pictures import Recipe
from tests.kernels import interpreter
from tests.kernels.devices import DEVICE, HAS_GPU
from torch.utils._python_dispatch import TorchDispatchMode

import headrace
from headrace.kernels import decode_batch, decode_staged, stage_batch

FAST = ["packed_index_kernel", "wave_kernel", "finish_kernel"]
DENSE = ["coded_index_kernel", "coded_numbers_kernel", "coded_expand_kernel", "wave_kernel", "finish_kernel"]
PALETTE = ["palette_expand_kernel", "wave_kernel", "finish_kernel"]
RAW = ["finish_kernel"]


def launches(datas, **options):
    if HAS_GPU:
        pytest.skip("launches are counted in the interpreter")
    with interpreter.counted() as launched:
        decode_batch(datas, device=DEVICE, backend="triton", **options)
    return launched


def encode(height, width, tile, mode, content="smooth", seed=0):
    """An image all of whose tiles are of one kind."""
    return specimens.file(Recipe(height, width, 3, content=content, seed=seed), tile, mode)


KINDS = {
    "packed": (specimens.packed, "fast", "smooth", FAST),
    "coded": (specimens.coded, "dense", "smooth", DENSE),
    "palette": (specimens.palette, "dense", "rectangles", PALETTE),
    "raw": (specimens.writer.raw, "fast", "noise", RAW),
    "constant": (specimens.constant, "dense", "flat", RAW),
}


@pytest.mark.parametrize("kind", KINDS)
def test_launches_do_not_depend_on_the_batch(kind, triton_backend):
    assert triton_backend == "triton"
    tile, mode, content, expected = KINDS[kind]
    small = launches([encode(9, 9, tile, mode, content)])
    large = launches([encode(h, w, tile, mode, content, seed=h) for h, w in ((34, 20), (9, 70), (40, 9))])

    assert small == large == expected


def test_everything_at_once_takes_each_kernel_once(triton_backend):
    assert triton_backend == "triton"
    datas = [encode(20, 20, tile, mode, content) for tile, mode, content, _expected in KINDS.values()]

    assert launches(datas) == FAST[:2] + DENSE[:4] + PALETTE


class NoWaiting(TorchDispatchMode):
    """Refuses whatever brings a number from the device to the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func not in {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}, func
        assert func is not torch.ops.aten._to_copy.default or "device" not in (kwargs or {}), func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", ["fast", "dense"])
def test_nothing_is_asked_of_the_device(mode, triton_backend):
    pictures = [Recipe(20, 40, 3), Recipe(33, 9, 3, content="3 colours")]
    datas = [headrace.encode(picture.render(), mode=mode) for picture in pictures]
    staged = stage_batch(datas, dtype="float32")
    buffer = staged.buffer.to(DEVICE)
    status = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    with NoWaiting():
        decode_staged(staged, buffer, status=status, backend=triton_backend)

    assert status.tolist() == [0, 0]


def test_the_watch_over_waiting_can_fail():
    with NoWaiting(), pytest.raises(AssertionError, match="_local_scalar_dense"):
        torch.zeros(3).max().item()
