# SPDX-License-Identifier: Apache-2.0
"""Memory that prepared batches are read into: aligned for direct reads, used again when the last view of it is gone.

A loader has a pool that its own batches come from, and prepared ones share it. Pinned memory, which costs milliseconds
to allocate, and pages of a reader alone are kept here.
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Memory: TypeAlias = npt.NDArray[np.uint8]

ALIGNMENT = 4096
# Batches of one run differ by little; sizes are rounded up so that a buffer fits the next of them.
_STEP = 1 << 20
_KEPT = 3
_HUGE_PAGE = 2 << 20


def allocate_pages(n_bytes: int) -> Memory:
    """Give whole pages of memory, large ones where they fit, and all of them there: a direct read holds each fast.

    One that has to find them first takes 70 ms for 40 MB, and to touch them beforehand a twentieth of that.
    """
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if n_bytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that was built without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    memory[::ALIGNMENT] = 0
    return memory


class Buffers:
    """A few buffers in turn. One reader takes them; they come back from whatever thread lets go of a batch last."""

    def __init__(self, allocate: Callable[[int], Memory] | None = None) -> None:
        """Take memory from `allocate`, which gives at least as many bytes as it is asked for."""
        self._allocate = allocate or allocate_pages
        # A deque, because appending to one needs no lock: finalizers do it, in the midst of anything.
        self._free: deque[Memory] = deque(maxlen=_KEPT)
        self.allocated = 0

    def take(self, n_bytes: int) -> Memory:
        """Give aligned memory of at least so many bytes; it comes back when nothing refers to it any more."""
        while self._free:
            memory = self._free.popleft()
            if memory.nbytes >= n_bytes:
                return np.asarray(_Lease(memory, self._free))
        self.allocated += 1
        memory = self._aligned(-(-max(n_bytes, 1) // _STEP) * _STEP)
        return np.asarray(_Lease(memory, self._free))

    def _aligned(self, n_bytes: int) -> Memory:
        memory = self._allocate(n_bytes)
        if memory.ctypes.data % ALIGNMENT:
            memory = self._allocate(n_bytes + ALIGNMENT)
            shift = -memory.ctypes.data % ALIGNMENT
            memory = memory[shift : shift + n_bytes]
        return memory


class _Lease:
    """The right to use a buffer: NumPy makes it the base of the array, and so of all views of that."""

    def __init__(self, memory: Memory, free: deque[Memory]) -> None:
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.append(self._memory)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": self._memory.shape, "typestr": "|u1", "data": (self._memory.ctypes.data, False)}
