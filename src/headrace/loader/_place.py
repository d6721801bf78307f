# SPDX-License-Identifier: Apache-2.0
"""Where a loader stands and where its next iteration starts: the rules of epochs, apart from everything that runs."""

from __future__ import annotations

from headrace.loader._keys import check_epoch
from headrace.loader._state import LoaderState


class Place:
    """Follows the epochs of one loader.

    Each iteration starts the epoch after the one that was last begun, unless `set_epoch` or `load` says otherwise; only
    `load` can start in the middle of one.
    """

    def __init__(self, state: LoaderState) -> None:
        self.state = state
        """What has been yielded so far."""
        self._start = state

    @property
    def start(self) -> LoaderState:
        """Where the next iteration starts."""
        return self._start

    def begin(self) -> LoaderState:
        """Start an iteration."""
        self.state = begun = self._start
        self._start = begun.at_epoch(begun.epoch + 1)
        return begun

    def advance(self, state: LoaderState) -> None:
        """Note how far the iteration that `begin` started has come."""
        self.state = state

    def set_epoch(self, epoch: int, *, iterating: bool) -> None:
        """Let the next iteration start this epoch; one that was loaded goes on where it was left."""
        if check_epoch(epoch) != self._start.epoch:
            self._start = self._start.at_epoch(epoch)
        if not iterating:
            self.state = self._start

    def load(self, state: LoaderState) -> None:
        """Let the next iteration go on from here."""
        state.check_continues(self.state)
        self.state = self._start = state
