# SPDX-License-Identifier: Apache-2.0
"""Fixtures that run the package's device path on the executor: per target, from two fills of scratch memory."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kernels.devices import HAS_GPU
from tests.kernels.ptx.program import has_compiler

from headrace.kernels import backend
from headrace.kernels.tables import TileField

BUILD = Path(__file__).resolve().parents[3] / "build"
TARGETS = ("sm_80", "sm_90")
WRITABLE = frozenset({"numbers", "entries", "values", "status", "out"})


def pytest_collection_modifyitems(items):
    """Compiled kernels need a process in which Triton does not interpret; `make kernels` starts one."""
    reason = None
    if find_spec("triton") is None or not has_compiler():
        reason = "needs Triton and a C compiler"
    elif HAS_GPU or os.environ.get("TRITON_INTERPRET") != "0":
        reason = "kernels are not compiled for the executor in this process: run `make kernels`"
    for item in items:
        if reason and item.get_closest_marker("compiled"):
            item.add_marker(pytest.mark.skip(reason=reason))


def tiles_of(name, arguments):
    """Of the payload a kernel may read the bytes of its tiles, and nothing between them."""
    if name != "payload":
        return None
    pairs = arguments["tiles"][[TileField.AT, TileField.LENGTH]].T.tolist()
    return [(int(at), int(length)) for at, length in pairs]


@pytest.fixture(params=TARGETS)
def target(request):
    """What kernels are compiled for."""
    return request.param


@pytest.fixture
def make_executor(target, monkeypatch):
    """Make an executor on which Triton launches until the test ends."""
    from benchmarks._kernels.variants import TARGETS as GPU_TARGETS  # noqa: PLC0415 - imports Triton
    from tests.kernels.ptx import driver  # noqa: PLC0415

    def make(**options):
        executor = driver.Executor(
            GPU_TARGETS[target], BUILD / "ptx", writable=WRITABLE, **({"pieces": tiles_of} | options)
        )
        monkeypatch.setattr(backend, "runs_triton", lambda device: device.type == "cpu")
        monkeypatch.setattr(driver.drivers, "_active", executor)
        return executor

    return make


@pytest.fixture(params=[0, 1], ids=["fill0", "fill1"])
def executor(request, make_executor, monkeypatch):
    """An executor, once with programs in order and once backwards, each from other contents of memory."""
    made = make_executor()
    made.backwards = bool(request.param)
    made.fill = (0xA5, 0x5A)[request.param]
    fill_with(monkeypatch, request.param)
    return made


@pytest.fixture(autouse=True)
def _poison() -> None:
    """Replaces the one fill of the other tests: `executor` has two."""


def fill_with(monkeypatch, seed):
    """Let new tensors hold random bytes, others for each seed."""
    empty = torch.empty

    def filled(*args, **options):
        tensor = empty(*args, **options)
        if tensor.numel() and tensor.device.type == "cpu":
            noise = np.random.default_rng(seed).integers(0, 256, tensor.numel() * tensor.element_size(), np.uint8)
            tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(noise))
        return tensor

    monkeypatch.setattr(torch, "empty", filled)
