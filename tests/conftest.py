# SPDX-License-Identifier: Apache-2.0
"""What every test can rely on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headrace


@pytest.fixture(autouse=True)
def _same_target() -> Iterator[None]:
    """A test that forces a target does not force it on the next one."""
    active = headrace.codec.active_target()
    yield
    headrace.codec.use_target(active)
