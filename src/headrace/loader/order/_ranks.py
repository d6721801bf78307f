# SPDX-License-Identifier: Apache-2.0
"""The rank of this process, and the world size."""

from __future__ import annotations

import operator
import sys
from typing import NamedTuple


class Ranks(NamedTuple):
    """The rank of a process among those that train together."""

    rank: int = 0
    world_size: int = 1


def find_ranks(rank: int | None = None, world_size: int | None = None) -> Ranks:
    """Return the arguments, else the ranks of torch.distributed if it is initialized, else a single rank.

    It does not import torch: a process that has not imported it has not initialized torch.distributed.
    """
    if rank is None and world_size is None:
        return _distributed() or Ranks()
    if rank is None or world_size is None:
        given, missing = ("world_size", "rank") if rank is None else ("rank", "world_size")
        raise ValueError(f"{given} needs {missing} too: give both, or neither to use torch.distributed")
    found = Ranks(operator.index(rank), operator.index(world_size))
    if found.world_size < 1 or not 0 <= found.rank < found.world_size:
        raise ValueError(f"rank must be in [0, world_size); got rank {found.rank}, world_size {found.world_size}")
    return found


def _distributed() -> Ranks | None:
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return Ranks(int(module.get_rank()), int(module.get_world_size()))
