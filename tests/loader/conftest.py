# SPDX-License-Identifier: Apache-2.0
"""Datasets to load from, made once; and no test leaves a thread behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.loader.datasets import CORE, our_threads, threads_left, write


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty samples of all sizes and formats."""
    return write(tmp_path_factory.mktemp("loader") / "forty.hr")


@pytest.fixture(scope="session")
def core_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same samples in formats that the core decodes."""
    return write(tmp_path_factory.mktemp("loader") / "core.hr", formats=CORE)


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    yield
    assert not our_threads() or threads_left() == []
