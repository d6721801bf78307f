# SPDX-License-Identifier: Apache-2.0
"""The parity fixtures: every codec test runs over the oracle, scalar code and each SIMD target."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from tests.codec.implementations import IMPLEMENTATIONS, MODES, NATIVES, Implementation, Mode, Native

# The same examples each time: a red build is then about the change that it tests. `slow` tests draw new ones.
settings.register_profile(
    "everyday",
    deadline=None,
    derandomize=True,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("everyday")


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda implementation: implementation.name, scope="session")
def implementation(request: pytest.FixtureRequest) -> Implementation:
    """Each way to decode, the oracle first."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=NATIVES, ids=lambda native: native.name, scope="session")
def native(request: pytest.FixtureRequest) -> Native:
    """Each target of the codec, for what only the codec can do: `out`, threads, limits, many at once."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=MODES, scope="session")
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param  # type: ignore[no-any-return]
