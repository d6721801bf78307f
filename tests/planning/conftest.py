# SPDX-License-Identifier: Apache-2.0
"""Example costs: a format that is small and slow to decode, one that is large and fast, and some in between."""

from __future__ import annotations

import pytest

from headrace.planning import Calibration, Cost


def make_cost(name: str, megabytes: float, milliseconds: float, **more) -> Cost:
    values = {"stored_bytes": megabytes * 1e6, "encode_seconds": 0.1} | more
    return Cost(format=name, read_bytes=megabytes * 1e6, cpu_seconds=milliseconds / 1e3, **values)


@pytest.fixture
def photos() -> Calibration:
    """The costs of 10,000 PNG images in four formats."""
    costs = (
        make_cost("png", 2.2, 40.0, encode_seconds=0.02),
        make_cost("hri:dense", 2.0, 12.0),
        make_cost("hri:fast", 2.6, 4.0),
        make_cost("raw", 6.3, 1.0),
    )
    return Calibration(
        costs=costs, images=10_000, sampled=64, batch_size=32, consumer_seconds=1e-5, source_format="png"
    )


@pytest.fixture
def jpegs() -> Calibration:
    """The costs of JPEG images; their own files are the only lossy format."""
    costs = (
        make_cost("jpeg", 0.1, 5.0, lossless=False),
        make_cost("hri:dense", 0.6, 3.0),
        make_cost("raw", 1.5, 0.5),
    )
    return Calibration(costs=costs, images=5_000, sampled=64, batch_size=32, source_format="jpeg")
