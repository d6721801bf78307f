# SPDX-License-Identifier: Apache-2.0
"""An exchange folder that is not there: nobody comes, nothing can be read, and the host walks its pattern alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from headrace.offload.exchange import BatchName, Heartbeat, HostExchange, PreparedBatch, Stretch
from headrace.offload.exchange._batch_file import LIMITS, Limits


class AbsentExchange:
    """Has what a `HostExchange` has, and none of its effects."""

    silent_seconds = 0.0

    def __init__(self, path: str, trouble: str) -> None:
        self.path, self.trouble = path, trouble

    def order(self, stretches: Iterable[Stretch], *, soon: bool = True) -> None:
        del stretches, soon

    def read(self, name: BatchName, limits: Limits = LIMITS) -> PreparedBatch | None:
        del name, limits
        return None

    def heartbeat(self, within: float = 0.0) -> Heartbeat | None:
        del within
        return None

    def publish_plan(self, epoch: int, document: Mapping[str, Any]) -> None:
        del epoch, document

    def read_plan(self, epoch: int) -> dict[str, Any] | None:
        del epoch
        return None


Exchange: TypeAlias = HostExchange | AbsentExchange
