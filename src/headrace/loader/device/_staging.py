# SPDX-License-Identifier: Apache-2.0
"""One copy a batch: all that goes to the device is laid out in one piece of pinned memory, of which there are two.

While the device copies from one, the next batch is laid out in the other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

_ALIGNMENT = 256  # of a device's allocations: what is viewed as another dtype is aligned to it
_BUFFERS = 2
_FIRST_BYTES = 4 << 20
_POLL_SECONDS = 0.0002


class Piece(NamedTuple):
    """A part of a batch's memory; what found no room in it has memory of its own."""

    start: int
    n_bytes: int
    apart: torch.Tensor | None = None


class Staging:
    """A batch's memory on the host, and after `send` on the device."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self._sent: torch.Tensor | None = None
        self._device: Any = None
        self._used = 0
        self.n_bytes = 0
        """All that was put here, or would have been had there been room."""

    @property
    def room(self) -> torch.Tensor:
        """What is left of the memory, for others to fill; `took` tells of what they did."""
        return self._memory[self._used :]

    def took(self, filled: torch.Tensor) -> Piece:
        """Note that the room was filled from its begin on, or that memory apart was used because it was too small."""
        n_bytes = filled.numel()
        self.n_bytes += _rounded(n_bytes)
        if filled.untyped_storage().data_ptr() != self._memory.untyped_storage().data_ptr():
            return Piece(0, n_bytes, filled)
        piece = Piece(self._used, n_bytes)
        self._used = min(self._used + _rounded(n_bytes), len(self._memory))
        return piece

    def put(self, array: npt.NDArray[Any]) -> Piece:
        """Copy an array here."""
        octets = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        room = self.room[: len(octets)]
        if len(room) < len(octets):
            return self.took(octets)
        room.copy_(octets)
        return self.took(room)

    def send(self, device: torch.device) -> torch.Tensor:
        """Begin to copy all to the device, on the current stream; gives what it is copied to."""
        self._device = device
        self._sent = self._memory[: self._used].to(device, non_blocking=True)
        return self._sent

    def bytes_of(self, piece: Piece) -> torch.Tensor:
        """A piece on the device."""
        if piece.apart is not None:
            return piece.apart.to(self._device, non_blocking=True)
        assert self._sent is not None, "sent first"
        return self._sent[piece.start : piece.start + piece.n_bytes]

    def tensor(self, piece: Piece, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """An array that was put here, on the device."""
        return self.bytes_of(piece).view(dtype).view(shape)


class StagingRing:
    """Gives memory for batch after batch. Pinned memory is used again when the device has copied from it."""

    def __init__(self, *, pin: bool) -> None:
        self._pin = pin
        self._most = _FIRST_BYTES
        self._busy: deque[tuple[Any, torch.Tensor]] = deque()

    def next(self, check: Callable[[], None]) -> Staging:
        """Memory for a batch; `check` is called while it is waited for, and may raise."""
        if not self._pin:  # others may keep what lies here, as it is on the device already: the CPU
            return Staging(torch.empty(self._most, dtype=torch.uint8))
        memory = None
        if len(self._busy) >= _BUFFERS:
            event = self._busy[0][0]
            while not event.query():
                check()
                time.sleep(_POLL_SECONDS)
            check()
            memory = self._busy.popleft()[1]
        if memory is None or len(memory) < self._most:
            memory = torch.empty(self._most, dtype=torch.uint8, pin_memory=True)
        return Staging(memory)

    def sent(self, staging: Staging, event: Any | None) -> None:
        """Keep the memory until the event; the next is as large as this batch needed, and a bit larger."""
        self._most = max(self._most, staging.n_bytes + staging.n_bytes // 4)
        if event is not None:
            self._busy.append((event, staging._memory))  # noqa: SLF001 - the ring's own


def _rounded(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
