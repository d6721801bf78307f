# SPDX-License-Identifier: Apache-2.0
"""Decoding on the accelerator: whole batches of `.hri` images, from compressed bytes to the training tensor.

Needs PyTorch; where Triton is there too, its kernels do the work, else plain PyTorch does.
"""

from importlib.util import find_spec

from headrace.errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra('decoding on a device needs PyTorch: pip install "headrace[gpu]"')

from headrace.kernels._backend import Backend, has_triton
from headrace.kernels._decode import PreparedBatch, decode_batch, decode_prepared, prepare_batch
from headrace.kernels._describe import TileSource
from headrace.kernels._devices import reason_not_compiled_for
from headrace.kernels._resize import resize_batch
from headrace.kernels._selftest import DeviceUse, reason_against_device
from headrace.kernels._status import check_status, failures
from headrace.kernels.resize._jobs import Resize

__all__ = [
    "Backend",
    "DeviceUse",
    "PreparedBatch",
    "Resize",
    "TileSource",
    "check_status",
    "decode_batch",
    "decode_prepared",
    "failures",
    "has_triton",
    "prepare_batch",
    "reason_against_device",
    "reason_not_compiled_for",
    "resize_batch",
]
