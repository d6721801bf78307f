# SPDX-License-Identifier: Apache-2.0
"""Memory that two processes share, and arrays on it that say when the last of them is gone.

The memory has no name in the file system, so nothing outlives the processes. It is mapped by the C library itself:
until Python 3.13 `mmap.mmap` keeps a file handle for each mapping, and a list of all batches of an epoch would run out
of them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_ALIGNMENT = 4096

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t),
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A piece of shared memory, mapped as long as anything refers to it."""

    def __init__(self, handle: int, n_bytes: int) -> None:
        self.n_bytes = 0
        address = _libc.mmap(None, n_bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, handle, 0)
        if address is None or address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, f"{n_bytes} bytes of shared memory cannot be mapped: {os.strerror(number)}")
        self.address, self.n_bytes = int(address), n_bytes

    def __del__(self) -> None:
        if self.n_bytes:
            _libc.munmap(self.address, self.n_bytes)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return _interface(self)


class Lease:
    """The right to use a mapping. Arrays made from it keep it; when the last is gone, `returned` is called.

    That may be in any thread, in the midst of anything, and so must not wait for a lock.
    """

    def __init__(self, mapping: Mapping, returned: Callable[[], None]) -> None:
        self._mapping, self._returned = mapping, returned

    def __del__(self) -> None:
        self._returned()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return _interface(self._mapping)


def _interface(mapping: Mapping) -> dict[str, Any]:
    # NumPy makes the object that it asked for this the base of the array, and with it of all views of the array.
    return {"version": 3, "shape": (mapping.n_bytes,), "typestr": "|u1", "data": (mapping.address, False)}


def allocate(n_bytes: int) -> tuple[int, Mapping]:
    """Make shared memory of at least so many bytes; give a file handle for the other process, and the mapping.

    Raises:
        OSError: There is no memory. Without asking for it here, a write would end the process.

    """
    rounded = aligned(max(n_bytes, 1))
    handle = _anonymous_file()
    try:
        os.ftruncate(handle, rounded)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, rounded)
        return handle, Mapping(handle, rounded)
    except BaseException:
        os.close(handle)
        raise


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headrace-batch", os.MFD_CLOEXEC)
    handle, path = tempfile.mkstemp(prefix="headrace-")
    Path(path).unlink()
    return handle


def aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


# Arrays of a batch in one piece of memory. A tree is an array, None, or a list of trees.


def tree_bytes(tree: Any) -> int:
    """How much memory `put_tree` needs."""
    if isinstance(tree, list):
        return sum(map(tree_bytes, tree))
    return 0 if tree is None else aligned(tree.nbytes)


def put_tree(tree: Any, memory: npt.NDArray[np.uint8], start: int = 0) -> tuple[Any, int]:
    """Copy arrays into memory from `start` on; give, as JSON, what is where, and the end."""
    if isinstance(tree, list):
        described = []
        for item in tree:
            entry, start = put_tree(item, memory, start)
            described.append(entry)
        return described, start
    if tree is None:
        return None, start
    target = memory[start : start + tree.nbytes].view(tree.dtype).reshape(tree.shape)
    np.copyto(target, tree)
    return {"dtype": tree.dtype.name, "shape": list(tree.shape), "start": start}, start + aligned(tree.nbytes)


def get_tree(described: Any, memory: npt.NDArray[np.uint8]) -> Any:
    """Give the arrays that `put_tree` described, on the memory itself."""
    if isinstance(described, list):
        return [get_tree(item, memory) for item in described]
    if described is None:
        return None
    dtype, shape, start = np.dtype(described["dtype"]), tuple(described["shape"]), described["start"]
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return memory[start : start + n_bytes].view(dtype).reshape(shape)
