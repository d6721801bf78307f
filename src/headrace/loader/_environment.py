# SPDX-License-Identifier: Apache-2.0
"""The decoders, their libraries and the devices that a loader can use on this machine."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

from headrace import _core
from headrace.formats import backends
from headrace.records.schema import FORMAT_CODES


def decoders() -> dict[str, str]:
    """Return what decodes each stored format in a loader: the C++ core, or a library in Python threads."""
    core_formats = _core.core_formats()
    libraries = backends()
    found = {}
    for form, code in FORMAT_CODES.items():
        if code not in core_formats:
            found[form] = f"{libraries[form.partition(':')[0]]}, in Python threads"
        elif form == "jpeg":
            found[form] = f"{_core.jpeg_library()}, in the core"
        else:
            found[form] = "headrace, in the core"
    return found


def libraries() -> dict[str, str]:
    """Return the version of each library that the C++ core was linked with."""
    names = (_core.jpeg_library(), _core.inflate_library())
    return {name: version for name, _, version in (name.partition(" ") for name in names)}


def devices() -> dict[str, str]:
    """Return what decodes `hri` on each GPU (`decode="device"`), or on the CPU if there is none; {} without torch."""
    if find_spec("torch") is None:
        return {}
    torch = importlib.import_module("torch")
    backend = "Triton kernels" if find_spec("triton") is not None else "the CPU: install triton to use the GPU"
    names = {f"cuda:{number}": torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}
    found = {name: f"{model}, decodes hri with {backend}" for name, model in names.items()}
    return found or {"cpu": "no GPU was found; decode='device' runs on the CPU, for tests"}
