# SPDX-License-Identifier: Apache-2.0
"""What host and offload worker can do, in closed form: seconds per epoch.

The slowest of the two and the trainer sets the pace. Host and offload worker that work at the same time
have the sum of their rates, so together they need host · near / (host + near) for a batch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds a batch, for one rank."""

    host: float
    """The host, with all its threads."""
    near: float
    """The offload worker: all its devices, as far as this rank has them."""
    step: float = 0.0
    """The trainer."""
    copy: float = 0.0
    """What a batch of the host's adds to the step, to come to the device; 0 where that is hidden behind it."""
    read: float = 0.0
    """What a prepared batch adds to the step; 0 where it is read ahead, as the loader does."""
    link: float = 0.0
    """For how long a prepared batch occupies the link, other ranks' batches included, which bounds the offload worker,
    and the trainer where prepared batches follow each other."""
    take: float = 0.0
    """What the host spends on reading a prepared batch, beside the step."""
    reading: float = 0.0
    """What part of the host's time it waits for the encoded images of a batch, which may come over the same link."""

    def __post_init__(self) -> None:
        added = (self.step, self.copy, self.read, self.link, self.take, self.reading)
        if not self.host > 0 or not self.near > 0 or min(added) < 0:
            raise ValueError(f"{self}: times a batch are more than 0, and what adds to the step not less")

    @property
    def supply(self) -> float:
        """Seconds between prepared batches as they arrive: the offload worker's own, or the link's."""
        return max(self.near, self.link)

    @property
    def in_a_row(self) -> float:
        """Seconds a batch of the trainer where all are prepared: its own, or the link's."""
        return max(self.step + self.read, self.link)

    @property
    def link_free(self) -> float:
        """Seconds of these in which the link is free, and an offload worker that writes to it gets on."""
        return self.in_a_row - self.link

    @property
    def both(self) -> float:
        """Seconds a batch of both sides at work."""
        return self.host * self.supply / (self.host + self.supply)


def host_only(times: Times) -> float:
    """Seconds a batch without an offload worker: max(host, step + copy)."""
    return max(times.host, times.step + times.copy)


def interleaved(times: Times) -> float:
    """Seconds a batch of `wrr`, and of `paced` with the right ratio: max(both, step and what it waits for).

    The share r of prepared batches is the time of a slot over the offload worker's, so the trainer needs
    step + (1 − r) · copy + r · read for each.
    """
    pace = times.both
    for _ in range(8):  # r depends on the pace, and changes it by a few per cent at most
        share = min(1.0, pace / times.supply)
        pace = max(times.both, times.step + (1 - share) * times.copy + share * times.read)
    return pace


def split_epoch(times: Times, batches: int, near: int, ready: int = 0) -> float:
    """Seconds an epoch of `mte` with a split that gives the offload worker `near` batches, `ready` of them made before.

    (batches − near) · max(host, step + copy) + near · max(step + read, link), and never before the offload worker is
    done, which stands still while its earlier batches are read, and its last batch trained on.
    """
    last = times.in_a_row
    walked = (batches - near) * host_only(times) + near * last
    made = max(0, near - ready) * times.supply + max(0, near - 1) * times.link
    return max(walked, made + last) if near else walked


@dataclass(frozen=True, slots=True)
class Watts:
    """Power of a rank's share of the machine: what is busy, and what runs all the time.

    Assumed, not measured: a server core under load, and the processor of a computational storage device.
    """

    host: float = 6.0
    """A host core while it is busy, above its idle power."""
    near: float = 2.0
    """The near processor while it is busy, above its idle power."""
