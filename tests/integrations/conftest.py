# SPDX-License-Identifier: Apache-2.0
"""A dataset for the trainers: fifty-one small images, whose labels are their numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.integrations.runs.job import CLASSES

import headrace


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = Path(tmp_path_factory.mktemp("trainers")) / "numbers.hr"
    rng = np.random.default_rng(0)
    samples = ({"image": rng.integers(0, 256, (10, 12, 3), np.uint8), "label": number} for number in range(CLASSES))
    headrace.build(samples, path, format="hri:fast", workers=1)
    return str(path)
