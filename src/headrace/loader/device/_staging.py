# SPDX-License-Identifier: Apache-2.0
"""One copy per batch: everything that goes to the device is laid out in one piece of pinned memory.

There are two such buffers. While the device copies from one, the next batch is laid out in the other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

_ALIGNMENT = 256  # as in a device's allocations: a view as another dtype needs an aligned start
_BUFFERS = 2
_FIRST_BYTES = 4 << 20
_POLL_SECONDS = 0.0002


class Piece(NamedTuple):
    """A part of a batch's memory. If there was no room for it, `apart` is its own memory."""

    start: int
    n_bytes: int
    apart: torch.Tensor | None = None


class Staging:
    """The memory of a batch on the host and, after `send`, on the device."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self._sent: torch.Tensor | None = None
        self._device: Any = None
        self._used = 0
        self.n_bytes = 0  # all bytes of the batch, including those for which there was no room

    @property
    def room(self) -> torch.Tensor:
        """The free part of the memory. Call `took` after filling it."""
        return self.memory[self._used :]

    def took(self, filled: torch.Tensor) -> Piece:
        """Record that the start of the room was filled, or that other memory was used because it was too small."""
        n_bytes = filled.numel()
        self.n_bytes += _aligned(n_bytes)
        if filled.untyped_storage().data_ptr() != self.memory.untyped_storage().data_ptr():
            return Piece(0, n_bytes, filled)
        piece = Piece(self._used, n_bytes)
        self._used = min(self._used + _aligned(n_bytes), len(self.memory))
        return piece

    def put(self, array: npt.NDArray[Any]) -> Piece:
        """Copy an array to the memory."""
        octets = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        room = self.room[: len(octets)]
        if len(room) < len(octets):
            return self.took(octets)
        room.copy_(octets)
        return self.took(room)

    def send(self, device: torch.device) -> torch.Tensor:
        """Start the copy to the device, on the current stream. Return the memory there."""
        self._device = device
        self._sent = self.memory[: self._used].to(device, non_blocking=True)
        return self._sent

    def bytes_of(self, piece: Piece) -> torch.Tensor:
        """Return a piece on the device."""
        if piece.apart is not None:
            return piece.apart.to(self._device, non_blocking=True)
        assert self._sent is not None, "sent first"
        return self._sent[piece.start : piece.start + piece.n_bytes]

    def tensor(self, piece: Piece, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """Return an array that was `put`, on the device."""
        return self.bytes_of(piece).view(dtype).view(shape)


class StagingRing:
    """Returns memory for one batch after another. Pinned memory is reused once the device has copied it."""

    def __init__(self, *, pin: bool) -> None:
        self._pin = pin
        self._max_bytes = _FIRST_BYTES
        self._busy: deque[tuple[Any, torch.Tensor]] = deque()

    def next(self, check: Callable[[], None]) -> Staging:
        """Return memory for a batch. While it waits, it calls `check`, which may raise."""
        if not self._pin:  # the device is the CPU: tensors may keep this memory, so it is not reused
            return Staging(torch.empty(self._max_bytes, dtype=torch.uint8))
        memory = None
        if len(self._busy) >= _BUFFERS:
            event = self._busy[0][0]
            while not event.query():
                check()
                time.sleep(_POLL_SECONDS)
            check()
            memory = self._busy.popleft()[1]
        if memory is None or len(memory) < self._max_bytes:
            memory = torch.empty(self._max_bytes, dtype=torch.uint8, pin_memory=True)
        return Staging(memory)

    def sent(self, staging: Staging, event: Any | None) -> None:
        """Keep the memory until the event. The next buffer is a quarter larger than this batch needed."""
        self._max_bytes = max(self._max_bytes, staging.n_bytes + staging.n_bytes // 4)
        if event is not None:
            self._busy.append((event, staging.memory))


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
