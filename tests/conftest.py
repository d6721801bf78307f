# SPDX-License-Identifier: Apache-2.0
"""What every test can rely on."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import headrace

HERE = Path(__file__).parent
NEED_SOURCES = {
    "benchmarks": "runs programs of the folder benchmarks",
    "codec/test_fuzz_corpus.py": "compiles the fuzz targets",
    "docs/test_architecture_page.py": "compares the page with the sources",
    "kernels/ptx": "compiles kernels",
    "kernels/test_carried.py": "reads the sources",
    "loader/test_path.py": "compares the page with the sources",
    "offload/test_path.py": "compares the page with the sources",
    "test_architecture.py": "reads the sources",
    "test_core.py": "compiles tests in C++",
    "test_stub.py": "reads the sources",
    "test_version.py": "reads the sources",
}
"""What is left out where there is only an installed wheel, and why (`make wheel`)."""

if not (HERE.parent / "src").is_dir():
    collect_ignore = [str(HERE / name) for name in NEED_SOURCES]


def pytest_report_header():
    """Say what is left out."""
    if (HERE.parent / "src").is_dir():
        return []
    return ["left out, because the source tree is absent:", *(f"  {name}: {why}" for name, why in NEED_SOURCES.items())]


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
