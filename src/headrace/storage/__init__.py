# SPDX-License-Identifier: Apache-2.0
"""Read files into host memory, and directly into GPU memory where the machine supports it.

    reader = DeviceReader("cuda")
    header, pixels = reader.read(path, [Extent(0, 4096), Extent(1 << 20, 1 << 24)])

`transfer_method()` returns what is used: kvikio with GPUDirect Storage, pinned memory, or ordinary memory.
"""

from headrace.storage._device import DeviceReader, Extent, TransferMethod, transfer_method
from headrace.storage._files import Files, Handle, Pace

__all__ = ["DeviceReader", "Extent", "Files", "Handle", "Pace", "TransferMethod", "transfer_method"]
