# SPDX-License-Identifier: Apache-2.0
"""What the loader finds to work with on this machine."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

from headrace import _core
from headrace.formats import backends
from headrace.records.schema import FORMAT_CODES
from headrace.units import usable_cores


def decoders() -> dict[str, str]:
    """For each stored format, what decodes it in a loader: the core itself, or a library through Python's threads."""
    ours = _core.core_formats()
    libraries = backends()
    found = {}
    for form, code in FORMAT_CODES.items():
        if code not in ours:
            found[form] = f"{libraries[form.partition(':')[0]]}, in threads of Python"
        elif form == "jpeg":
            found[form] = f"{_core.jpeg_library()}, in the core"
        else:
            found[form] = "headrace, in the core"
    return found


def devices() -> dict[str, str]:
    """For each accelerator of PyTorch's, and for the CPU in its stead, what decodes `hri` there (`decode="device"`)."""
    if find_spec("torch") is None:
        return {}
    torch = importlib.import_module("torch")
    backend = "Triton's kernels" if find_spec("triton") is not None else "plain PyTorch, slowly: install triton"
    names = {f"cuda:{number}": torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}
    found = {name: f"{model}, decodes hri with {backend}" for name, model in names.items()}
    return found or {"cpu": "no accelerator is found; decode='device' runs on the CPU, for tests"}


def cores() -> int:
    """Cores that this process may use: the worker threads of a loader by default."""
    return usable_cores()
