# SPDX-License-Identifier: Apache-2.0
"""Devices: which ones the kernels are compiled for, and launching on one that is not the current one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

MIN_CAPABILITY = (8, 0)
"""Of NVIDIA's devices; `make kernels` compiles for sm_80 and newer ones."""
AMD_ARCHITECTURES = ("gfx942",)


def reason_not_compiled_for(device: torch.device) -> str | None:
    """Say why the kernels are not known to compile for a device; None if they are."""
    if device.type != "cuda":
        return f"the kernels were never compiled for devices of type {device.type!r}"
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
    """Make a device the current one: Triton launches there, whichever device the arguments are on."""
    if device.type == "cuda":
        return torch.cuda.device(device)
    if device.type == "xpu":
        return torch.xpu.device(device)
    return nullcontext()
