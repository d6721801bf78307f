# SPDX-License-Identifier: Apache-2.0
"""`wrr`: weighted round robin, in which the weights emerge by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.offload.strategies._model import Times, interleaved
from headrace.offload.strategies._strategy import Decision, Outlook, Strategy


@dataclass(frozen=True)
class Wrr(Strategy):
    """Before each step: a prepared batch if there is one unread, else the host's next one; until head meets tail.

        slot            0  1  2  3  4  5  6  7  8  9          host = 1, near = 4
        taken from      h  h  h  h  N  h  h  h  h  N …        whenever one happens to be there

    An epoch takes N · max(host · near / (host + near), step + copy), whatever was measured before, and the shares
    settle at 1 / host : 1 / near. The order depends on timing, so it is part of the state, and no two runs have the
    same; several ranks, which must take the same batches at the same time, cannot use it.
    """

    name: ClassVar[str] = "wrr"
    follows_pattern: ClassVar[bool] = False

    def share(self, times: Times, outlook: Outlook) -> Decision:
        """Take what is ready."""
        return Decision(None, None, outlook.batches * interleaved(times))
