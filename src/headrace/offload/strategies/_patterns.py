# SPDX-License-Identifier: Apache-2.0
"""Patterns: which slots of an epoch get prepared batches, in four integers.

An epoch of N batches has N slots. The host takes batches 0, 1, 2 … from the head, the offload worker N − 1, N − 2 …
from the tail. So what was consumed is always a prefix and a suffix, and what remains is one contiguous stretch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which slots get prepared batches: none of the first `skip`, then `near` of every `of`, evenly spread.

    After `skip`, slot j gets one if (phase + (j + 1) · near) // of is more than (phase + j · near) // of, which is
    Bresenham's line. The rest of a pattern after some slots is a pattern again, so a resumed run continues in step.
    """

    skip: int = 0
    near: int = 0
    of: int = 1
    phase: int = 0

    def __post_init__(self) -> None:
        numbers = (self.skip, self.near, self.of, self.phase)
        if not all(type(number) is int and abs(number) <= _MAX_INTEGER for number in numbers):
            raise ValueError("skip, near, of and phase of a pattern must be integers of at most 63 bits")
        if self.skip < 0 or not 0 <= self.near <= self.of or self.of < 1 or not 0 <= self.phase < self.of:
            raise ValueError(f"a pattern must have 0 ≤ skip, 0 ≤ near ≤ of and 0 ≤ phase < of; got {self.to_json()}")

    def is_prepared(self, slot: int) -> bool:
        return self.prepared_before(slot + 1) > self.prepared_before(slot)

    def slots(self, count: int) -> bytes:
        """Return for each of the first `count` slots whether it gets a prepared batch: 1 or 0."""
        flags, error = bytearray(count), self.phase
        for slot in range(self.skip, count):
            error += self.near
            if error >= self.of:
                error -= self.of
                flags[slot] = 1
        return bytes(flags)

    def prepared_before(self, slots: int) -> int:
        """Return how many of the first `slots` get prepared batches."""
        return (self.phase + max(0, slots - self.skip) * self.near) // self.of

    def after(self, slots: int) -> Pattern:
        """Return the pattern of what follows the first `slots`."""
        done = max(0, slots - self.skip)
        phase = (self.phase + done * self.near) % self.of
        return Pattern(max(0, self.skip - slots), self.near, self.of, phase)

    def delayed(self, slots: int) -> Pattern:
        """Return this pattern after `slots` slots of the host."""
        return Pattern(self.skip + slots, self.near, self.of, self.phase)

    def to_json(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_json(cls, tree: Any) -> Pattern:
        """Read a pattern; ValueError if it is not valid."""
        if not isinstance(tree, Mapping) or set(tree) != {"skip", "near", "of", "phase"}:
            raise ValueError("a pattern must be an object with skip, near, of and phase")
        return cls(**tree)


HOST_ONLY = Pattern()
"""The host makes all batches."""
