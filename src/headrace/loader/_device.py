# SPDX-License-Identifier: Apache-2.0
"""From the host's memory to the device's: pinned copies, and copies on a stream of their own beside the training."""

from __future__ import annotations

import importlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from headrace.loader._options import Options
from headrace.loader._output import map_leaves


class Arriving(NamedTuple):
    """A batch of so many samples on the device, and the event after which it is there; None if it already is."""

    batch: Any
    samples: int
    event: Any | None = None


class Transfer:
    """Brings batches to a device of PyTorch's. `start` runs in the loader's thread, `finish` in the trainer's.

    Without a device, or with the CPU, it does nothing; so does `pin_memory` where there is no CUDA.
    """

    def __init__(self, options: Options) -> None:
        self.seconds = 0.0
        self._pins = self.moves = self._streams = False
        self._device: Any = None
        self._stream: Any = None
        self._making_stream = threading.Lock()
        # What is being copied from must stay as it is until the copy is done.
        self._held: deque[tuple[Any, Any]] = deque()
        if options.device is None and not options.pin_memory:
            return
        self._torch: Any = importlib.import_module("torch")
        self._pins = options.pin_memory and self._torch.cuda.is_available()
        if options.device is not None:
            self._device = self._torch.device(options.device)
            self.moves = self._device.type != "cpu"
            self._streams = self._device.type == "cuda"

    @property
    def works(self) -> bool:
        """Whether there is anything to do, for which a thread beside the trainer's is worth while."""
        return self._pins or self.moves

    def start(self, batch: Any, samples: int) -> Arriving:
        """Begin to copy a batch; the host's copy is kept until that is done."""
        if not self.works:
            return Arriving(batch, samples)
        begun = time.perf_counter()
        try:
            if self._streams:
                return self._start_on_stream(batch, samples)
            if self._pins:
                batch = self._map(batch, lambda tensor: tensor.pin_memory())
            if self.moves:
                batch = self._map(batch, lambda tensor: tensor.to(self._device))
            return Arriving(batch, samples)
        finally:
            self.seconds += time.perf_counter() - begun

    def _start_on_stream(self, batch: Any, samples: int) -> Arriving:
        # What a device decoded is there already.
        pinned = self._map(batch, lambda tensor: tensor.pin_memory() if tensor.device.type == "cpu" else tensor)
        with self.beside():
            moved = self._map(pinned, lambda tensor: tensor.to(self._device, non_blocking=True))
            event = self.record()
        while self._held and self._held[0][0].query():
            self._held.popleft()
        self._held.append((event, pinned))
        return Arriving(moved, samples, event)

    @property
    def device(self) -> Any:
        """PyTorch's device that batches go to; None without one."""
        return self._device

    def find_device(self) -> None:
        """Take "cuda" for the device that is current in this thread, the trainer's; in others it may be another."""
        if self._streams and self._device.type == "cuda" and self._device.index is None:
            self._device = self._torch.device("cuda", self._torch.cuda.current_device())

    @property
    def pins_staging(self) -> bool:
        """Whether what goes to the device is copied from pinned memory, on a stream."""
        return self._streams

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Let what this thread launches run beside the training: on the stream of the copies, in order with them."""
        if not self._streams:
            yield
            return
        with self._torch.cuda.stream(self._side_stream()):
            yield

    def record(self) -> Any | None:
        """An event after all that was launched beside the training so far; None where everything is waited for."""
        return self._side_stream().record_event() if self._streams else None

    def _side_stream(self) -> Any:
        with self._making_stream:
            if self._stream is None:
                # 0 is CUDA's lowest priority: a trainer on a stream of a higher one is never behind this one.
                self._stream = self._torch.cuda.Stream(self._device, 0)
            return self._stream

    def finish(self, arriving: Arriving) -> Any:
        """Let the trainer's stream wait for a batch; the trainer itself does not wait."""
        if arriving.event is None:
            return arriving.batch
        stream = self._torch.cuda.current_stream(self._device)
        stream.wait_event(arriving.event)
        # The memory was allocated on another stream, whose allocator must know who else uses it.
        self._map(arriving.batch, lambda tensor: tensor.record_stream(stream))
        return arriving.batch

    def close(self) -> None:
        """Wait for the copies under way, and let go of what they were made from."""
        while self._held:
            self._held.popleft()[0].synchronize()

    def forget(self) -> None:
        """Drop what belongs to the process that this one was forked from."""
        self._held.clear()
        self._stream = None
        self._making_stream = threading.Lock()  # the other one may have been held in the moment of the fork

    def _map(self, batch: Any, change: Any) -> Any:
        return map_leaves(batch, lambda leaf: change(leaf) if isinstance(leaf, self._torch.Tensor) else leaf)
