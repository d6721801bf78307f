# SPDX-License-Identifier: Apache-2.0
"""The model of the strategies: how long an epoch takes, from measured seconds per batch.

The slowest of host and worker together, or the trainer, limits the speed. Host and worker that run at the same time add
their rates, so together they need host · worker / (host + worker) seconds per batch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per batch, for one rank."""

    host: float
    """The host, with all its threads."""
    worker: float
    """The offload worker, including the turns of other ranks."""
    step: float = 0.0
    """The trainer."""
    link: float = 0.0
    """How long reading a prepared batch occupies the link; a lower limit for prepared batches in a row."""
    take: float = 0.0
    """CPU time of the host for reading a prepared batch."""
    reading: float = 0.0
    """The part of `host` in which it waits for encoded images, which may come over the same link."""

    def __post_init__(self) -> None:
        if not self.host > 0 or not self.worker > 0 or min(self.step, self.link, self.take, self.reading) < 0:
            raise ValueError(f"host and worker must be more than 0 and the others not negative; got {self}")

    @property
    def supply(self) -> float:
        """Seconds between two prepared batches: the offload worker's, or the link's."""
        return max(self.worker, self.link)

    @property
    def link_free(self) -> float:
        """For prepared batches in a row: the seconds per batch in which the offload worker may write over the link."""
        return max(0.0, self.step - self.link)

    @property
    def both(self) -> float:
        """Seconds per batch with both sides at work."""
        return self.host * self.supply / (self.host + self.supply)


def host_only(times: Times) -> float:
    """Return the seconds per batch without an offload worker."""
    return max(times.host, times.step)


def interleaved(times: Times) -> float:
    """Return the seconds per batch of `wrr`, and of `paced` with the right ratio."""
    return max(times.both, times.step)


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
