# SPDX-License-Identifier: Apache-2.0
"""Something opened once in each thread of each process: not shared, not inherited by a fork, not pickled."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Local(Generic[T]):
    """Holds one value a thread, made for a key; another key, or a fork, makes another value."""

    def __init__(self) -> None:
        self._slot = threading.local()

    def get(self, key: object, make: Callable[[], T]) -> T:
        wanted = (os.getpid(), key)
        held: tuple[Any, T] | None = getattr(self._slot, "held", None)
        if held is None or held[0] != wanted:
            self._slot.held = None  # let go of the old before the new takes memory
            held = (wanted, make())
            self._slot.held = held
        return held[1]

    def __reduce__(self) -> tuple[type[Local[T]], tuple[()]]:
        return type(self), ()
