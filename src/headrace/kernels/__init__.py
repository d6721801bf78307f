# SPDX-License-Identifier: Apache-2.0
"""Decode batches of `.hri` images on a device, from compressed bytes to the training tensor.

Needs PyTorch. Triton kernels run where Triton is installed and supports the device. Elsewhere plain references run on
the host, which is slow.
"""

from importlib.util import find_spec

from headrace.errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra('decoding on a device needs PyTorch: pip install "headrace[gpu]"')

from headrace.kernels._batch import StagedBatch
from headrace.kernels._decode import decode_batch, decode_staged, stage_batch
from headrace.kernels._describe import TileSource
from headrace.kernels._resize import ResizeWindow, resize_batch
from headrace.kernels._selftest import DeviceUse, reason_against_device
from headrace.kernels._status import check_status, failures
from headrace.kernels.backend import Backend, has_triton, reason_not_compiled_for

__all__ = [
    "Backend",
    "DeviceUse",
    "ResizeWindow",
    "StagedBatch",
    "TileSource",
    "check_status",
    "decode_batch",
    "decode_staged",
    "failures",
    "has_triton",
    "reason_against_device",
    "reason_not_compiled_for",
    "resize_batch",
    "stage_batch",
]
