# SPDX-License-Identifier: Apache-2.0
"""A dataset to read from, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.records.samples import write

import headrace
from headrace.records import Dataset


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("records") / "thirty.hr")


@pytest.fixture
def ds(path: Path) -> Dataset:
    return headrace.open(path)
