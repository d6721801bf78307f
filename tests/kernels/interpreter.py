# SPDX-License-Identifier: Apache-2.0
"""Triton's interpreter, made quicker where it can be, and made to check every address where that is the point.

Both reach into Triton. Where a version of it is built otherwise, tests are slower, or the address check skips itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Do not set the language up anew for each call of one function by another, nor check sums for overflow."""
    try:
        from triton.language import core  # noqa: PLC0415
        from triton.runtime import interpreter  # noqa: PLC0415

        builder = interpreter.interpreter_builder
        replaced = [
            (interpreter.InterpretedFunction, "__call__", called(interpreter.InterpretedFunction.__call__)),
            (interpreter, "_get_np_dtype", by_name(interpreter._get_np_dtype)),
            (core.block_type, "__init__", made_once(core.block_type.__init__)),
            (core.tensor, "__init__", shaped_once(core.tensor.__init__)),
            (builder, "options", dataclasses.replace(builder.options, sanitize_overflow=False)),
        ]
    except (ImportError, AttributeError):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in replaced:
            patch.setattr(owner, name, value)
        yield


def called(call: Callable[..., Any]) -> Callable[..., Any]:
    """Functions without their setting up: the launch has done it for ours; Triton's own keep it once it is done."""
    set_up: set[str] = set()

    def called_at_once(self: Any, *args: Any, **named: Any) -> Any:
        module = self.fn.__module__
        if module.startswith("headrace") or module in set_up:
            return self.rewrite()(*args, **named)
        set_up.add(module)
        return call(self, *args, **named)

    return called_at_once


def by_name(find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What is found for a type is found once."""
    known: dict[str, Any] = {}

    def found(of: Any) -> Any:
        if of.name not in known:
            known[of.name] = find(of)
        return known[of.name]

    return found


def made_once(make: Callable[..., None]) -> Callable[..., None]:
    """The type of a block is checked and named when it is first met: each operation makes several."""
    known: dict[Any, dict[str, Any]] = {}

    def initialise(self: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, *(getattr(side, "value", side) for side in shape)
        if key not in known:
            make(self, element_ty, shape)
            known[key] = dict(vars(self))
        vars(self).update(known[key])
        self.element_ty = element_ty

    return initialise


def shaped_once(make: Callable[..., None]) -> Callable[..., None]:
    """The shape of a tensor, in Triton's own numbers, is made once for each type."""
    known: dict[str, tuple[Any, Any]] = {}

    def initialise(self: Any, handle: Any, type: Any) -> None:  # noqa: A002 - Triton passes it by this name
        if type.name not in known:
            make(self, handle, type)
            known[type.name] = self.shape, self.numel
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = known[type.name]

    return initialise


class Ranges:
    """The addresses that may be read, and those that may be written."""

    def __init__(self) -> None:
        self.readable: list[tuple[int, int]] = []
        self.writable: list[tuple[int, int]] = []
        self.checked = 0
        self.cut = 0  # bytes of each tile that are forbidden, for tests of the check itself

    def forget(self) -> None:
        """Allow nothing any more."""
        self.readable.clear()
        self.writable.clear()

    def allow(self, tensor: Any, *, write: bool = False) -> None:
        """Allow the memory of a contiguous tensor."""
        begin = tensor.data_ptr()
        self.allow_bytes(begin, begin + tensor.numel() * tensor.element_size(), write=write)

    def allow_bytes(self, begin: int, end: int, *, write: bool = False) -> None:
        self.readable.append((begin, end))
        if write:
            self.writable.append((begin, end))

    def check(self, addresses: Any, size: int, mask: Any, ranges: list[tuple[int, int]]) -> None:
        wanted = np.broadcast_to(mask, np.shape(addresses)).ravel()
        used = np.asarray(addresses).ravel()[wanted].astype(np.uint64)
        begins, ends = np.array(sorted(ranges), np.uint64).T
        if ranges is self.readable:  # a word that holds a byte of a tile may be read; the rest of it is padding
            ends = (ends + np.uint64(size - 1)) // np.uint64(size) * np.uint64(size)
        place = np.searchsorted(begins, used, "right").astype(np.int64) - 1
        inside = (place >= 0) & (used + np.uint64(size) <= ends[np.maximum(place, 0)])
        assert inside.all(), f"{(~inside).sum()} of {len(used)} addresses are out of range"
        self.checked += len(used)


@contextlib.contextmanager
def checked(ranges: Ranges) -> Iterator[None]:
    """Fail on any load, store or atomic operation outside of the ranges."""
    runtime = pytest.importorskip("triton.runtime.interpreter")
    native = getattr(runtime, "_interpreter", None)
    if native is None or not all(hasattr(native, name) for name in ("load", "store", "atomic_rmw")):
        pytest.skip("this version of Triton interprets memory in another way")

    class Checked:
        def __getattr__(self, name: str) -> Any:
            return getattr(native, name)

        def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
            ranges.check(pointers, np.dtype(dtype).itemsize, mask, ranges.readable)
            return native.load(pointers, mask, other, dtype)

        def store(self, pointers: Any, values: Any, mask: Any) -> Any:
            ranges.check(pointers, values.dtype.itemsize, mask, ranges.writable)
            return native.store(pointers, values, mask)

        def atomic_rmw(self, operation: Any, pointers: Any, values: Any, mask: Any, order: Any) -> Any:
            ranges.check(pointers, values.dtype.itemsize, mask, ranges.writable)
            return native.atomic_rmw(operation, pointers, values, mask, order)

    runtime._interpreter = Checked()
    try:
        yield
    finally:
        runtime._interpreter = native


@contextlib.contextmanager
def counted() -> Iterator[list[str]]:
    """The names of the kernels that are launched, in order."""
    runtime = pytest.importorskip("triton.runtime.interpreter")
    launched: list[str] = []
    run = runtime.GridExecutor.__call__

    def noted(self: Any, *args: Any, **named: Any) -> Any:
        launched.append(self.fn.__name__)
        return run(self, *args, **named)

    runtime.GridExecutor.__call__ = noted
    try:
        yield launched
    finally:
        runtime.GridExecutor.__call__ = run
