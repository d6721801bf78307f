# SPDX-License-Identifier: Apache-2.0
"""Which implementation runs the operations (Triton kernels or plain references), and on which devices."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import torch

from headrace.errors import MissingExtra
from headrace.kernels._batch import DeviceBatch
from headrace.kernels.tables import TileKind

Backend: TypeAlias = Literal["auto", "triton", "reference"]
BACKENDS = ("auto", "triton", "reference")
MIN_CAPABILITY = (8, 0)
"""Lowest compute capability of NVIDIA GPUs; `make kernels` compiles for sm_80 and newer."""
AMD_ARCHITECTURES = ("gfx942",)


def interprets() -> bool:
    """Whether Triton interprets kernels on the CPU: a mode for tests, set before Triton is imported."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def sized(on_device: int, interpreted: int) -> int:
    """Return a block size. The interpreter's cost depends on the number of operations, so it gets larger blocks."""
    return interpreted if interprets() else on_device


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def runs_triton(device: torch.device) -> bool:
    """Whether Triton kernels run on a device of this type."""
    return device.type in {"cuda", "xpu"} or (device.type == "cpu" and interprets())


def reason_not_compiled_for(device: torch.device) -> str | None:
    """Say why the kernels are not known to compile for a device; None if they are."""
    if device.type != "cuda":
        return f"the kernels are not compiled for devices of type {device.type!r}"
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA or ROCm device"
    if torch.version.hip is not None:
        name = str(torch.cuda.get_device_properties(device).gcnArchName).partition(":")[0]
        if name not in AMD_ARCHITECTURES:
            return f"the kernels are compiled for {', '.join(AMD_ARCHITECTURES)}; {device} is {name}"
        return None
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        needed, found = (".".join(map(str, each)) for each in (MIN_CAPABILITY, capability))
        return f"the kernels need compute capability {needed} or higher; {device} has {found}"
    return None


def launching_on(device: torch.device) -> AbstractContextManager[object]:
    """Make a device the current one: Triton launches there, not on the device of the arguments."""
    if device.type == "cuda":
        return torch.cuda.device(device)
    if device.type == "xpu":
        return torch.xpu.device(device)
    return nullcontext()


def choose(backend: Backend, device: torch.device) -> Literal["triton", "reference"]:
    """Return the implementation for a device. A backend that is requested by name is used or is an error."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}; got {backend!r}")
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
    """Run the operations that the tiles of a batch need, in order."""
    if backend == "reference":
        import_module("headrace.kernels._reference").run(batch)
        return

    def operation(name: str) -> Any:
        return import_module(f"headrace.kernels.{name}.triton")

    staged = batch.staged
    if staged.has(TileKind.PACKED):
        operation("packed").index(batch)
        operation("wave").run(batch, TileKind.PACKED)
    if staged.has(TileKind.CODED):
        operation("coded").expand(batch)
        operation("wave").run(batch, TileKind.CODED)
    if staged.has(TileKind.PALETTE):
        operation("palette").expand(batch)
        operation("wave").run(batch, TileKind.PALETTE)
    if batch.tiles.shape[1] > 0:
        operation("finish").run(batch)
