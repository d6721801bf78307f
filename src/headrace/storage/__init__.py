# SPDX-License-Identifier: Apache-2.0
"""Read files into host memory, directly into GPU memory where the machine supports it, and from object stores.

    reader = DeviceReader("cuda")
    header, pixels = reader.read(path, [Extent(0, 4096), Extent(1 << 20, 1 << 24)])

`transfer_method()` returns what is used: kvikio with GPUDirect Storage, pinned memory, or ordinary memory.

    objects = Objects("s3://bucket/photos.hr")
    fetch_now(objects, [ObjectRange("shards/000000.hrs", start=0, n_bytes=4096, to=0)], write)
"""

from headrace.storage._device import DeviceReader, Extent, TransferMethod, transfer_method
from headrace.storage._files import Files, Handle, Pace
from headrace.storage._objects import Objects
from headrace.storage._requests import (
    Fetcher,
    ObjectRange,
    RangePart,
    StoreCounts,
    call_in_loop,
    fetch_now,
    run_in_loop,
)
from headrace.storage._slots import Slots, pack
from headrace.storage._url import is_url, join_url

__all__ = [
    "DeviceReader",
    "Extent",
    "Fetcher",
    "Files",
    "Handle",
    "ObjectRange",
    "Objects",
    "Pace",
    "RangePart",
    "Slots",
    "StoreCounts",
    "TransferMethod",
    "call_in_loop",
    "fetch_now",
    "is_url",
    "join_url",
    "pack",
    "run_in_loop",
    "transfer_method",
]
