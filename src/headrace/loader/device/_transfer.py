# SPDX-License-Identifier: Apache-2.0
"""From the host's memory to the device's: pinned copies on streams of their own, beside the training.

    copy      bytes 1   bytes 2   bytes 3                  encoded batches, as soon as they are laid out
    decode              decode 1  decode 2  decode 3       waits for the copy of its own batch
    deliver                       labels 1  labels 2       what comes last; has the event that the trainer waits for

A stream runs its work in order and waits for another stream only at an event. So the copy of one batch overlaps
the decoding of the one before it, and a batch that is decoded does not wait for those behind it.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Any, NamedTuple

from headrace.loader._options import Options
from headrace.loader.batch.output import map_leaves


class Lane(Enum):
    """What the streams of a loader are for."""

    COPY = "copy"
    """Encoded batches on their way to the device."""
    DECODE = "decode"
    """Kernels."""
    DELIVER = "deliver"
    """The rest of a batch: labels, pixels that the CPU decoded, and what puts a decoded batch together."""


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
        self._lanes: dict[Lane, Any] = {}
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
        with self.on(Lane.DELIVER):
            moved = self._map(pinned, lambda tensor: tensor.to(self._device, non_blocking=True))
            event = self.record(Lane.DELIVER)
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
    def on(self, lane: Lane) -> Iterator[None]:
        """Let what this thread launches run on a stream of the loader, beside the training."""
        if not self._streams:
            yield
            return
        with self._torch.cuda.stream(self._stream(lane)):
            yield

    def delivering(self) -> AbstractContextManager[None]:
        """Let what this thread launches run where finished batches are put together."""
        return self.on(Lane.DELIVER)

    def record(self, lane: Lane) -> Any | None:
        """An event after all that was launched on a lane so far; None where everything is waited for."""
        return self._stream(lane).record_event() if self._streams else None

    def wait(self, lane: Lane, event: Any | None) -> None:
        """Let a lane go on only after an event of another; the host does not wait."""
        if event is not None:
            self._stream(lane).wait_event(event)

    def share(self, tensors: Any, lane: Lane) -> None:
        """Keep the memory of tensors that were made on another lane until this one is done with them as well."""
        if self._streams:
            stream = self._stream(lane)
            self._map(tensors, lambda tensor: tensor.record_stream(stream))

    def _stream(self, lane: Lane) -> Any:
        with self._making_stream:
            if lane not in self._lanes:
                # 0 is CUDA's lowest priority: a trainer on a stream of a higher one is never behind the loader.
                self._lanes[lane] = self._torch.cuda.Stream(self._device, 0)
            return self._lanes[lane]

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
        self._lanes = {}
        self._making_stream = threading.Lock()  # the other one may have been held in the moment of the fork

    def _map(self, batch: Any, change: Any) -> Any:
        return map_leaves(batch, lambda leaf: change(leaf) if isinstance(leaf, self._torch.Tensor) else leaf)
