# SPDX-License-Identifier: Apache-2.0
"""Which implementation runs the operations: Triton's kernels, or plain PyTorch where there is no Triton."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import torch

from headrace.errors import MissingExtra
from headrace.kernels._batch import DeviceBatch
from headrace.kernels._fields import Kind

Backend: TypeAlias = Literal["auto", "triton", "reference"]
BACKENDS = ("auto", "triton", "reference")


def interprets() -> bool:
    """Whether Triton's kernels are interpreted, on the CPU: a mode for tests, set before Triton is imported."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def sized(on_device: int, interpreted: int) -> int:
    """How much a program takes at a time. The interpreter is as slow for little as for much, so it takes more."""
    return interpreted if interprets() else on_device


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def runs_triton(device: torch.device) -> bool:
    """Whether Triton's kernels run on a device of this type."""
    return device.type in {"cuda", "xpu"} or (device.type == "cpu" and interprets())


def choose(backend: Backend, device: torch.device) -> Literal["triton", "reference"]:
    """The implementation for a device. What is asked for and cannot be had is an error, never replaced in silence."""
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}; possible are {', '.join(map(repr, BACKENDS))}")
    if backend == "auto":
        return "triton" if has_triton() and runs_triton(device) else "reference"
    if backend == "triton" and not has_triton():
        raise MissingExtra('Triton is not installed: pip install "headrace[gpu]", or use backend="reference"')
    if backend == "triton" and not runs_triton(device):
        raise ValueError(
            f'Triton does not run on the device {str(device)!r}: use backend="reference", or for tests on the CPU '
            "start Python with TRITON_INTERPRET=1"
        )
    return backend


def decode_with(backend: Literal["triton", "reference"], batch: DeviceBatch) -> None:
    """Run the operations of a batch in their order. What it has no tiles for is left out."""

    def operation(name: str) -> Any:
        return import_module(f"headrace.kernels.{name}.{backend}")

    staged = batch.staged
    if staged.has(Kind.PACKED):
        operation("packed").index(batch)
        operation("wave").run(batch, Kind.PACKED)
    if staged.has(Kind.CODED):
        coded = operation("coded")
        coded.index(batch)
        coded.numbers(batch)
        coded.expand(batch)
        operation("wave").run(batch, Kind.CODED)
    if staged.has(Kind.PALETTE):
        operation("palette").expand(batch)
        operation("wave").run(batch, Kind.PALETTE)
    if batch.tiles.shape[1] > 0:
        operation("finish").run(batch)
