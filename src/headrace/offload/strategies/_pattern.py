# SPDX-License-Identifier: Apache-2.0
"""Whose batch comes when: an interleave that is a pure function of four whole numbers, and the walk from both ends.

An epoch of N batches has N slots. The host takes batches 0, 1, 2 … from the head, the offload worker N − 1, N − 2 …
from the tail, so what has been consumed is always a prefix and a suffix, and what remains is one contiguous stretch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.offload._untrusted import briefly, integer


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which slots are the offload worker's: none of the first `skip`, then `near` of every `of`, evenly spread.

    After `skip`, slot j is the offload worker's if (phase + (j + 1) · near) // of is more than (phase + j · near) //
    of, which is Bresenham's line: no two runs differ by more than one slot. What is left of a pattern after some slots
    is a pattern again, so a run that is resumed goes on in step.
    """

    skip: int = 0
    near: int = 0
    of: int = 1
    phase: int = 0

    def __post_init__(self) -> None:
        numbers = (self.skip, self.near, self.of, self.phase)
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
            raise ValueError(f"a pattern is four whole numbers, not {numbers}")
        if self.skip < 0 or not 0 <= self.near <= self.of or self.of < 1 or not 0 <= self.phase < self.of:
            raise ValueError(
                f"a pattern with skip {self.skip}, near {self.near}, of {self.of}, phase {self.phase}: "
                f"0 ≤ skip, 0 ≤ near ≤ of and 0 ≤ phase < of are expected"
            )

    def is_near(self, slot: int) -> bool:
        return self.near_before(slot + 1) > self.near_before(slot)

    def near_before(self, slots: int) -> int:
        """How many of the first `slots` are the offload worker's."""
        return (self.phase + max(0, slots - self.skip) * self.near) // self.of

    def after(self, slots: int) -> Pattern:
        """Give the pattern of the slots that follow the first `slots`."""
        done = max(0, slots - self.skip)
        phase = (self.phase + done * self.near) % self.of
        return Pattern(max(0, self.skip - slots), self.near, self.of, phase)

    def delayed(self, slots: int) -> Pattern:
        """Give the pattern that begins with `slots` of the host's and goes on as this one."""
        return Pattern(self.skip + slots, self.near, self.of, self.phase)

    def to_json(self) -> dict[str, int]:
        return {"skip": self.skip, "near": self.near, "of": self.of, "phase": self.phase}

    @classmethod
    def from_json(cls, tree: Any) -> Pattern:
        """Read a pattern; ValueError if it is none."""
        if not isinstance(tree, Mapping) or set(tree) != {"skip", "near", "of", "phase"}:
            raise ValueError(f"a pattern is an object with skip, near, of and phase; found {briefly(tree)}")
        return cls(**{name: integer(f"{name} of a pattern", value) for name, value in tree.items()})


HOST_ONLY = Pattern()
"""No slot is the offload worker's."""


class Turns:
    """Which batch each slot of one epoch gets. Without a pattern, whatever is ready is taken."""

    def __init__(self, batches: int, pattern: Pattern | None) -> None:
        self.batches = batches
        self.pattern = pattern
        self.head = 0
        """The host's next batch."""
        self.tail = batches
        """One above the offload worker's next batch."""
        self._origin = 0

    @property
    def slot(self) -> int:
        return self.head + self.batches - self.tail

    @property
    def remaining(self) -> int:
        return self.tail - self.head

    def replan(self, pattern: Pattern | None) -> None:
        """Go on by another pattern, whose slot 0 is the next one."""
        self.pattern, self._origin = pattern, self.slot

    def is_near(self, ready: bool) -> bool:
        """Whether the next slot is the offload worker's; `ready` says whether it has its next batch."""
        return ready if self.pattern is None else self.pattern.is_near(self.slot - self._origin)

    def is_near_at(self, slot: int) -> bool:
        """Whether a slot to come is the offload worker's, as far as the pattern says."""
        return self.pattern is not None and self.pattern.is_near(slot - self._origin)

    def take(self, near: bool) -> int:
        """Give the next slot's batch to one of both sides, and its number."""
        if self.remaining < 1:
            raise IndexError(f"all {self.batches} batches are taken")
        if near:
            self.tail -= 1
            return self.tail
        self.head += 1
        return self.head - 1

    @property
    def bottom(self) -> int:
        """The lowest batch that the offload worker will be asked for; without a pattern, the next of the host's."""
        if self.pattern is None:
            return self.head
        done = self.slot - self._origin
        left = self.pattern.near_before(done + self.remaining) - self.pattern.near_before(done)
        return self.tail - left
