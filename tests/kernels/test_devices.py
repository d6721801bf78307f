# SPDX-License-Identifier: Apache-2.0
"""Launches go to the device of their tensors, in grids that a device accepts."""

from __future__ import annotations

import contextlib

import pytest
import torch
from tests.codec.pictures import Recipe

import headrace
from headrace.kernels import ResizeWindow, _decode, _resize, backend, decode_batch, resize_batch

LIMIT = 65535  # of a grid in y and z


@pytest.fixture
def guarded(monkeypatch):
    """Which device was made the current one, and what ran meanwhile."""
    diary = []

    @contextlib.contextmanager
    def noted(device):
        diary.append(f"enter {device}")
        yield
        diary.append(f"leave {device}")

    for module in (_decode, _resize):
        monkeypatch.setattr(module, "launching_on", noted)
    decode = _decode.decode_with
    monkeypatch.setattr(_decode, "decode_with", lambda *args: diary.append("decode") or decode(*args))
    return diary


def test_a_batch_is_decoded_with_its_device_as_the_current_one(guarded):
    decode_batch([headrace.encode(Recipe(5, 6, 3).render())], device="cpu", backend="reference")

    assert guarded == ["enter cpu", "decode", "leave cpu"]


def test_images_are_resized_with_their_device_as_the_current_one(guarded):
    resize_batch([torch.zeros((1, 4, 4), dtype=torch.uint8)], [ResizeWindow((4, 4), (2, 2))], backend="reference")

    assert guarded == ["enter cpu", "leave cpu"]


@pytest.mark.parametrize(("device", "made"), [("cuda:1", "cuda:1"), ("xpu:2", "xpu:2"), ("cpu", None)])
def test_the_guard_is_that_of_the_device(device, made, monkeypatch):
    entered = []

    def guard(of):
        entered.append(str(of))
        return contextlib.nullcontext()

    for module in (torch.cuda, torch.xpu):
        monkeypatch.setattr(module, "device", guard)
    with backend.launching_on(torch.device(device)):
        pass

    assert entered == ([] if made is None else [made])


class Kernel:
    """Takes the place of a kernel; keeps the grids it is launched with, and launches nothing."""

    def __init__(self):
        self.grids = []

    def __getitem__(self, grid):
        self.grids.append(grid)
        return lambda *_args, **_options: None


def test_a_large_resize_has_a_grid_that_devices_accept(monkeypatch):
    """512 x 128 rectangles of 8 x 32 pixels are one more than fits in y."""
    resize = pytest.importorskip("headrace.kernels.resize.triton")
    kernel = Kernel()
    monkeypatch.setattr(resize, "resize_kernel", kernel)
    for name, value in {"ROWS": 8, "COLUMNS": 32}.items():
        monkeypatch.setattr(resize, name, value)
    monkeypatch.setattr(_resize, "choose", lambda *_: "triton")
    resize_batch([torch.zeros((1, 8, 8), dtype=torch.uint8)] * 3, [ResizeWindow((8, 8), (4096, 4096))] * 3)
    [grid] = kernel.grids

    assert grid[0] == 3 * 512 * 128
    assert all(extent <= LIMIT for extent in grid[1:])
