# SPDX-License-Identifier: Apache-2.0
"""A dataset for near workers, made once, and an empty exchange folder for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.loader.datasets import CORE, write
from tests.prongs.nearby import COUNT


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("prongs") / "forty.hr", COUNT, formats=CORE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An exchange folder."""
    folder = tmp_path / "exchange"
    folder.mkdir()
    return folder
