# SPDX-License-Identifier: Apache-2.0
"""Datasets for offload workers, made once, and an empty exchange folder for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.loader.datasets import CORE, our_threads, threads_left, write
from tests.offload.exchanges import COUNT


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("offload") / "forty.hr", COUNT, formats=CORE)


@pytest.fixture(scope="session")
def core_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty samples of all sizes, in formats that the core decodes."""
    return write(tmp_path_factory.mktemp("offload") / "core.hr", formats=CORE)


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    yield
    assert not our_threads() or threads_left() == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An exchange folder."""
    folder = tmp_path / "exchange"
    folder.mkdir()
    return folder
