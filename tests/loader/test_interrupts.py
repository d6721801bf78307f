# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at any moment: it is raised where the trainer waits, nothing hangs, and the loader can be used again."""

from __future__ import annotations

import gc
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.loader.datasets import COUNT

import headrace
from headrace.transforms import RandomCrop

CROP = RandomCrop(16)
SECONDS = 1.5
MOST_DELAY = 0.02


class Interrupted(BaseException):
    """Raised by a signal handler in the main thread, as KeyboardInterrupt is."""


@pytest.fixture(name="interrupts")
def _interrupts() -> Iterator[None]:
    def interrupt(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def same(sample: Any) -> Any:
    return sample


MODES: dict[str, dict[str, Any]] = {
    "threads": {"output": "numpy", "transform": [CROP]},
    "functions": {"output": "numpy", "transform": [CROP, same]},
    "device": {"device": "cpu", "decode": "device", "transform": [CROP]},
}


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_an_interrupt_is_raised_wherever_it_comes(path: Path, options: dict[str, Any]) -> None:
    if "device" in options:
        pytest.importorskip("torch")
    rng = random.Random(0)
    raised = waited = 0
    gc.disable()  # what a signal raises within a finalizer, Python drops: that is not ours to test
    try:
        with headrace.Loader(path, batch_size=4, num_workers=2, fields=["image", "label"], **options) as loader:
            assert len(list(loader)) == COUNT // 4  # imports what it needs
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                waited += 1
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, MOST_DELAY))
                    while True:
                        for _ in loader:
                            pass
                except Interrupted:
                    raised += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert sum(len(batch["label"]) for batch in loader) == COUNT
    finally:
        gc.enable()
    assert raised == waited > 20
