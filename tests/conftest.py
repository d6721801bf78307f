# SPDX-License-Identifier: Apache-2.0
"""What every test can rely on."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import hypothesis
import pytest

import headrace


@pytest.fixture(autouse=True)
def _same_target() -> Iterator[None]:
    """A test that forces a target does not force it on the next one."""
    active = headrace.codec.active_target()
    yield
    headrace.codec.use_target(active)


def pytest_configure():
    """Let Ctrl-C interrupt: a shell that starts a job in the background has it ignored, and tests of it would wait."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes is the machine's affair, and others may use it.
    hypothesis.settings.register_profile("headrace", deadline=None)
    hypothesis.settings.load_profile("headrace")


def pytest_collection_finish():
    """Keep modules and tests, which stay to the end, out of garbage collection: it looks at what a test made, alone."""
    gc.collect()
    gc.freeze()
