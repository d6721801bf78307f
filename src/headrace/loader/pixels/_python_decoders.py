# SPDX-License-Identifier: Apache-2.0
"""Threads that decode what the core cannot: PNG and WebP, and JPEG in a build without libjpeg-turbo.

The core reads the bytes and checks them; a thread here calls the format's library, which lets go of the GIL while it
works, and hands the pixels back to be transformed. The threads know the engine and not the loader, so they keep no
loader alive; they end when the engine is closed, or when the interpreter is about to end.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.errors import CorruptImage, EngineClosed, HeadraceError
from headrace.formats import Color, Format
from headrace.loader._threads import start_thread
from headrace.loader._wait import interpreter_ends
from headrace.records.checksum import crc32c
from headrace.records.rendition import UNCHECKED, decoder

_all: weakref.WeakSet[ForeignThreads] = weakref.WeakSet()


def _close_all() -> None:
    for threads in list(_all):
        threads.engine.close()


# The interpreter waits for threads before it ends. What `concurrent.futures` has for its own closes the engines that
# nobody has closed by then; without it each thread looks for itself. On a host with a hundred of them and little to do
# that costs a part of a core.
_at_end: Callable[[Callable[[], None]], None] | None = getattr(threading, "_register_atexit", None)
if _at_end is not None:
    _at_end(_close_all)
_SLICE_SECONDS = 0.2 if _at_end is None else 60.0


class ForeignThreads:
    """The decoding threads of one engine."""

    def __init__(self, engine: _core.Engine, count: int) -> None:
        self.engine = engine
        _all.add(self)
        self._threads = [start_thread(_serve, (engine,), f"headrace-decode-{number}") for number in range(count)]

    def join(self) -> None:
        """Wait for all to end, after the engine was closed."""
        for thread in self._threads:
            if thread is not threading.current_thread():  # a finalizer of the user's may close the loader anywhere
                thread.join()


def decode_next(engine: _core.Engine) -> None:
    """Decode one image that waits for a decoder of Python's, in the calling thread, if there is any."""
    image = engine.next_external(0.0)
    if image is not None:
        _decode(image, _Scratch())


def _serve(engine: _core.Engine) -> None:
    scratch = _Scratch()
    while not interpreter_ends():
        try:
            foreign = engine.next_external(_SLICE_SECONDS)
        except EngineClosed:
            return
        if foreign is not None:
            with contextlib.suppress(
                Exception
            ):  # out of memory, say: an image that is dropped fails, the thread goes on
                _decode(foreign, scratch)
            del foreign  # or its bytes, and the engine, would be kept until the next one comes


def _decode(foreign: _core.ExternalImage, scratch: _Scratch) -> None:
    try:
        data: Any = foreign.data
        if foreign.format in UNCHECKED and crc32c(data) != foreign.checksum:
            raise CorruptImage("the bytes do not have their checksum")  # noqa: TRY301 - told like all that follows
        form = decoder(foreign.format)
        color: Color = "index" if foreign.mask else "RGB" if foreign.rgb else "keep"
        out = scratch.fitting(form, data, color)
        foreign.finish(form.decode(data, color=color, out=out, max_pixels=foreign.max_pixels))
    except HeadraceError as error:
        foreign.fail(type(error).__name__, str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the sample has failed and the trainer must hear of it
        foreign.fail("LoaderError", f"{type(error).__name__}: {error}")


class _Scratch:
    """A thread's memory for decoded pixels: fresh pages for each image would cost as much as decoding a JPEG."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def fitting(self, form: Format, data: Any, color: Color) -> npt.NDArray[Any] | None:
        """Give an array that the image fits; None where the head does not tell, as for the indices of a palette."""
        if color == "index":
            return None
        shape = form.probe(data)
        dtype = np.dtype(shape.dtype)
        sides = (shape.height, shape.width, 3) if color == "RGB" else shape.array
        n_bytes = int(np.prod(sides, dtype=np.int64)) * dtype.itemsize
        if n_bytes > _MOST_SCRATCH:
            return None
        if n_bytes > len(self._memory):
            self._memory = np.empty(n_bytes, np.uint8)
        return self._memory[:n_bytes].view(dtype).reshape(sides)


_MOST_SCRATCH = 1 << 28  # a larger image gets memory of its own, which is given back
