# SPDX-License-Identifier: Apache-2.0
"""Bytes from files: into the host's memory, and straight into an accelerator's where the machine can do that.

    reader = DeviceReader("cuda")
    header, pixels = reader.read(path, [Extent(0, 4096), Extent(1 << 20, 1 << 24)])

`how()` tells by which way: kvikio and GPUDirect Storage, pinned memory, or plain memory.
"""

from headrace.storage._ask import How, how
from headrace.storage._extents import BLOCK_BYTES, Extent, Run, coalesce
from headrace.storage._files import Files, Handle
from headrace.storage._pace import Pace
from headrace.storage._reader import DeviceReader

__all__ = ["BLOCK_BYTES", "DeviceReader", "Extent", "Files", "Handle", "How", "Pace", "Run", "coalesce", "how"]
