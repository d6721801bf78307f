# SPDX-License-Identifier: Apache-2.0
"""Which rank this process is, and of how many."""

from __future__ import annotations

import operator
import sys
from typing import NamedTuple


class Ranks(NamedTuple):
    """A process' place among those that train together."""

    rank: int = 0
    world_size: int = 1


def find_ranks(rank: int | None = None, world_size: int | None = None) -> Ranks:
    """Take what is given, else what torch.distributed says, else the only rank there is.

    torch is never imported for it: a process that has not imported it has not initialised it either.
    """
    if rank is None and world_size is None:
        return _distributed() or Ranks()
    if rank is None or world_size is None:
        given, missing = ("world_size", "rank") if rank is None else ("rank", "world_size")
        raise ValueError(f"{given} is given without {missing}: give both, or neither to ask torch.distributed")
    found = Ranks(operator.index(rank), operator.index(world_size))
    if found.world_size < 1 or not 0 <= found.rank < found.world_size:
        raise ValueError(
            f"rank {found.rank} of a world of {found.world_size}: ranks count from 0 and are below world_size"
        )
    return found


def _distributed() -> Ranks | None:
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return Ranks(int(module.get_rank()), int(module.get_world_size()))
