# SPDX-License-Identifier: Apache-2.0
"""Copies from host memory to a device, on CUDA streams of their own, in parallel with the training.

    copy      bytes 1   bytes 2   bytes 3                  encoded batches, as soon as they are laid out
    decode              decode 1  decode 2  decode 3       waits for the copy of its own batch
    deliver                       labels 1  labels 2       the rest; its event is what the training stream waits for

A stream runs its work in order and waits for another stream only at an event. So the copy of one batch overlaps
the decoding of the one before it, and a decoded batch does not wait for later ones.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

from headrace.loader._options import Options
from headrace.loader.batch.output import map_leaves

Lane: TypeAlias = Literal["copy", "decode", "deliver"]
"""The streams of a loader: copies of encoded batches; kernels; the rest of a batch and assembling it."""


class Arriving(NamedTuple):
    """A batch that is complete after the event; at once if there is none."""

    batch: Any
    samples: int
    event: Any | None = None


class Transfer:
    """Copies batches to a PyTorch device. `start` runs in the loader's thread, `finish` in that of the training loop.

    It does nothing without a device or if that is the CPU. `pin_memory` does nothing without CUDA.
    """

    def __init__(self, options: Options) -> None:
        self.seconds = 0.0
        self._pins = self.moves = self.pins_staging = False
        self.device: Any = None
        self._lanes: dict[Lane, Any] = {}
        self._making_stream = threading.Lock()
        # (event, source of a copy): the source must not be freed before the copy is done.
        self._held: deque[tuple[Any, Any]] = deque()
        if options.device is None and not options.pin_memory:
            return
        self._torch: Any = importlib.import_module("torch")
        self._pins = options.pin_memory and self._torch.cuda.is_available()
        if options.device is not None:
            self.device = self._torch.device(options.device)
            self.moves = self.device.type != "cpu"
            self.pins_staging = self.device.type == "cuda"

    @property
    def works(self) -> bool:
        """Whether there is anything to do, which is worth a thread of its own."""
        return self._pins or self.moves

    def find_device(self) -> None:
        """Resolve "cuda" to the current device of this thread, that of the training loop. Others may differ."""
        if self.pins_staging and self.device.type == "cuda" and self.device.index is None:
            self.device = self._torch.device("cuda", self._torch.cuda.current_device())

    def start(self, batch: Any, samples: int) -> Arriving:
        """Start to copy a batch."""
        started = time.perf_counter()
        try:
            if self.pins_staging:
                return self._start_on_stream(batch, samples)
            if self._pins:
                batch = self._map(batch, lambda tensor: tensor.pin_memory())
            if self.moves:
                batch = self._map(batch, lambda tensor: tensor.to(self.device))
            return Arriving(batch, samples)
        finally:
            self.seconds += time.perf_counter() - started

    def _start_on_stream(self, batch: Any, samples: int) -> Arriving:
        # Pixels that the device decoded are there already.
        pinned = self._map(batch, lambda tensor: tensor.pin_memory() if tensor.device.type == "cpu" else tensor)
        with self.on("deliver"):
            moved = self._map(pinned, lambda tensor: tensor.to(self.device, non_blocking=True))
            event = self.record("deliver")
        while self._held and self._held[0][0].query():
            self._held.popleft()
        self._held.append((event, pinned))
        return Arriving(moved, samples, event)

    def finish(self, arriving: Arriving) -> Any:
        """Let the current stream wait for a batch, and return it. The host does not wait."""
        if arriving.event is None:
            return arriving.batch
        stream = self._torch.cuda.current_stream(self.device)
        stream.wait_event(arriving.event)
        # The memory was allocated on another stream: its allocator must know that this one uses it.
        self._map(arriving.batch, lambda tensor: tensor.record_stream(stream))
        return arriving.batch

    @contextmanager
    def on(self, lane: Lane) -> Iterator[None]:
        """Run the launches of this thread on a stream of the loader."""
        if not self.pins_staging:
            yield
            return
        with self._torch.cuda.stream(self._stream(lane)):
            yield

    def record(self, lane: Lane) -> Any | None:
        """Return an event after everything that was launched on a lane; None if nothing is asynchronous."""
        return self._stream(lane).record_event() if self.pins_staging else None

    def wait(self, lane: Lane, event: Any | None) -> None:
        """Let a lane wait for an event of another one. The host does not wait."""
        if event is not None:
            self._stream(lane).wait_event(event)

    def share(self, tensors: Any, lane: Lane) -> None:
        """Keep the memory of tensors from another lane until this lane is done with them."""
        if self.pins_staging:
            stream = self._stream(lane)
            self._map(tensors, lambda tensor: tensor.record_stream(stream))

    def _stream(self, lane: Lane) -> Any:
        with self._making_stream:
            if lane not in self._lanes:
                # 0 is CUDA's lowest priority: training on a stream of higher priority never waits for the loader.
                self._lanes[lane] = self._torch.cuda.Stream(self.device, 0)
            return self._lanes[lane]

    def close(self) -> None:
        """Wait for the copies in progress."""
        while self._held:
            self._held.popleft()[0].synchronize()

    def forget(self) -> None:
        """Drop what belongs to the parent process, after a fork."""
        self._held.clear()
        self._lanes = {}
        self._making_stream = threading.Lock()  # the parent may have held the old one

    def _map(self, batch: Any, change: Any) -> Any:
        return map_leaves(batch, lambda leaf: change(leaf) if isinstance(leaf, self._torch.Tensor) else leaf)
