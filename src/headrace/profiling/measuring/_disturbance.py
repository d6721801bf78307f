# SPDX-License-Identifier: Apache-2.0
"""During which measurements the machine had something else to do: what the system's books say of other programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.profiling.measuring._meters import Cost, metered

OTHERS = 0.25
"""Of our cores: with more than this used by others, figures are too low and the verdict may be wrong."""
LEAST_SECONDS = 0.05
"""What is shorter was no measurement."""
BOOKED_SECONDS = 0.5
"""The system's books are kept in hundredths of a second: of a shorter measurement they say nothing."""


@dataclass(frozen=True, slots=True)
class _Seen:
    name: str
    cost: Cost


class Watch:
    """Looks at the machine around one measurement after the other."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        # Others may have the cores that we do not use.
        self._spare = max(0, (os.cpu_count() or cores) - cores)
        self._seen: list[_Seen] = []

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Watch the machine during a measurement."""
        with metered() as cost:
            yield
        if cost.seconds >= LEAST_SECONDS:
            self._seen.append(_Seen(name, cost))

    @property
    def disturbed(self) -> tuple[str, ...]:
        """The measurements that other programs met."""
        return tuple(seen.name for seen in self._seen if self._is_disturbed(seen))

    def _is_disturbed(self, seen: _Seen) -> bool:
        if seen.cost.seconds < BOOKED_SECONDS:
            return False
        return (seen.cost.others or 0.0) - self._spare > OTHERS * self._cores
