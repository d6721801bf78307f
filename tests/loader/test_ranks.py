# SPDX-License-Identifier: Apache-2.0
"""Rank and world size: as given, or as torch.distributed has them, without importing torch."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from headrace.loader._options import Ranks, find_ranks


def distributed(*, available=True, initialized=True):
    return SimpleNamespace(
        is_available=lambda: available, is_initialized=lambda: initialized, get_rank=lambda: 2, get_world_size=lambda: 4
    )


def test_alone_by_default(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)

    assert find_ranks() == Ranks(0, 1)


def test_torch_is_asked_if_it_knows(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed())
    assert find_ranks() == Ranks(2, 4)
    assert find_ranks(0, 3) == Ranks(0, 3), "what is given counts"
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed(initialized=False))
    assert find_ranks() == Ranks(0, 1)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed(available=False))
    assert find_ranks() == Ranks(0, 1)


@pytest.mark.parametrize(
    ("rank", "world_size", "message"),
    [
        (1, None, "rank needs world_size"),
        (None, 2, "world_size needs rank"),
        (2, 2, "got rank 2, world_size 2"),
        (-1, 2, "got rank -1, world_size 2"),
        (0, 0, "got rank 0, world_size 0"),
    ],
)
def test_ranks_that_cannot_be_are_refused(rank, world_size, message):
    with pytest.raises(ValueError, match=message):
        find_ranks(rank, world_size)


def test_ranks_are_whole_numbers():
    with pytest.raises(TypeError):
        find_ranks(0.5, 2)


def test_torch_is_not_imported():
    code = (
        "import sys; from headrace.loader._options import find_ranks\n"
        "find_ranks(); sys.exit(any(name.split('.')[0] == 'torch' for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
