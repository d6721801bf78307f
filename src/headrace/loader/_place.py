# SPDX-License-Identifier: Apache-2.0
"""Where a loader stands and where its next iteration starts: the rules of epochs, apart from everything that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.loader._state import LoaderState
from headrace.loader.order._keys import check_epoch


class Place:
    """Follows the epochs of one loader.

    Each iteration starts the epoch after the one that was last begun, unless `set_epoch` or `load` says otherwise; only
    `load` can start in the middle of one.
    """

    def __init__(self, state: LoaderState) -> None:
        self._start = self._begun = state
        self._batches = 0
        self._after: Callable[[int], LoaderState] | None = None

    @property
    def state(self) -> LoaderState:
        """What has been yielded so far; worked out when it is asked for, which few batches are followed by."""
        return self._begun if self._after is None or not self._batches else self._after(self._batches)

    @property
    def start(self) -> LoaderState:
        """Where the next iteration starts."""
        return self._start

    def begin(self, after: Callable[[int], LoaderState]) -> None:
        """Start an iteration; `after` gives the state after so many of its batches."""
        self._stand(self._start, after)
        self._start = self._begun.at_epoch(self._begun.epoch + 1)

    def advance(self, batches: int) -> None:
        """Note how far the iteration that `begin` started has come."""
        self._batches = batches

    def __getstate__(self) -> dict[str, Any]:
        """A copy stands where this one does, and knows nothing of its iteration."""
        return {"_start": self._start, "_begun": self.state, "_batches": 0, "_after": None}

    def _stand(self, state: LoaderState, after: Callable[[int], LoaderState] | None = None) -> None:
        self._begun, self._batches, self._after = state, 0, after

    def set_epoch(self, epoch: int, *, iterating: bool) -> None:
        """Let the next iteration start this epoch; one that was loaded goes on where it was left."""
        if check_epoch(epoch) != self._start.epoch:
            self._start = self._start.at_epoch(epoch)
        if not iterating:
            self._stand(self._start)

    def load(self, state: LoaderState) -> None:
        """Let the next iteration go on from here."""
        state.check_continues(self.state)
        self._start = state
        self._stand(state)
