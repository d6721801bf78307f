# SPDX-License-Identifier: Apache-2.0
"""Python threads that decode WebP, the one format of datasets that the C++ core does not decode.

The core reads and checks the bytes. A thread calls the format's library, which releases the GIL while it works, and
returns the pixels to the core for the transforms. The threads refer to the engine and not to the loader, so they do not
keep it alive. They end when the engine is closed or the interpreter exits.
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
from headrace.loader._threads import interpreter_exits, start_thread
from headrace.records.checksum import crc32c
from headrace.records.rendition import UNCHECKED, decoder

_all: weakref.WeakSet[DecoderThreads] = weakref.WeakSet()


def _close_all() -> None:
    for threads in list(_all):
        threads.engine.close()


# The interpreter waits for threads before it exits. The hook that `concurrent.futures` uses closes engines that are
# still open. Without it each thread has to check often, which costs a part of a core on a host with 100 idle threads.
_at_exit: Callable[[Callable[[], None]], None] | None = getattr(threading, "_register_atexit", None)
if _at_exit is not None:
    _at_exit(_close_all)
_SLICE_SECONDS = 0.2 if _at_exit is None else 60.0


class DecoderThreads:
    """The decoding threads of one engine."""

    def __init__(self, engine: _core.Engine, count: int) -> None:
        self.engine = engine
        _all.add(self)
        self._threads = [start_thread(_serve, (engine,), f"headrace-decode-{number}") for number in range(count)]

    def join(self) -> None:
        """Wait for all threads to end, after the engine was closed."""
        for thread in self._threads:
            if thread is not threading.current_thread():  # a finalizer may close the loader in any thread
                thread.join()


def decode_next(engine: _core.Engine) -> None:
    """Decode one image that waits for a Python decoder, if there is one, in the calling thread."""
    image = engine.next_external(0.0)
    if image is not None:
        _decode(image, _DecodeBuffer())


def _serve(engine: _core.Engine) -> None:
    buffer = _DecodeBuffer()
    while not interpreter_exits():
        try:
            image = engine.next_external(_SLICE_SECONDS)
        except EngineClosed:
            return
        if image is not None:
            with contextlib.suppress(Exception):  # such as MemoryError: the dropped image fails, the thread continues
                _decode(image, buffer)
            del image  # it would keep its bytes and the engine until the next one arrives


def _decode(image: _core.ExternalImage, buffer: _DecodeBuffer) -> None:
    try:
        data: Any = image.data
        if image.format in UNCHECKED and crc32c(data) != image.checksum:
            raise CorruptImage("the bytes do not match their checksum")  # noqa: TRY301 - reported below like all others
        form = decoder(image.format)
        color: Color = "index" if image.mask else "RGB" if image.rgb else "keep"
        out = buffer.array_for(form, data, color)
        image.finish(form.decode(data, color=color, out=out, max_pixels=image.max_pixels))
    except HeadraceError as error:
        image.fail(type(error).__name__, str(error))
    except Exception as error:  # noqa: BLE001 - any exception means that the sample has failed
        image.fail("LoaderError", f"{type(error).__name__}: {error}")


class _DecodeBuffer:
    """Reusable memory of a thread for decoded pixels: new pages for each image cost as much as decoding a JPEG."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def array_for(self, form: Format, data: Any, color: Color) -> npt.NDArray[Any] | None:
        """Return an array of the image's shape; None if the header does not give it, as for palette indices."""
        if color == "index":
            return None
        shape = form.probe(data)
        dtype = np.dtype(shape.dtype)
        sides = (shape.height, shape.width, 3) if color == "RGB" else shape.array
        n_bytes = int(np.prod(sides, dtype=np.int64)) * dtype.itemsize
        if n_bytes > _MAX_BUFFER_BYTES:
            return None
        if n_bytes > len(self._memory):
            self._memory = np.empty(n_bytes, np.uint8)
        return self._memory[:n_bytes].view(dtype).reshape(sides)


_MAX_BUFFER_BYTES = 1 << 28  # a larger image gets its own memory, which is freed
