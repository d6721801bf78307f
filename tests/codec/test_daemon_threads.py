# SPDX-License-Identifier: Apache-2.0
"""A program ends as it should while daemon threads are inside the core."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import threading
import time
import numpy as np
import headrace

image = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
data = headrace.encode(image)
begun = threading.Barrier(3)

def work():
    begun.wait()
    while True:
        {call}

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.05)
"""
CALLS = ["headrace.decode(data)", "headrace.encode(image)", "headrace.codec.decode_many([data] * 4)"]


@pytest.mark.parametrize("call", CALLS)
def test_the_program_ends(call: str) -> None:
    """They ask for the GIL back when the interpreter is ending; that must not abort the process."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(call=call)], capture_output=True, text=True, check=False, timeout=60
    )

    assert (ran.returncode, ran.stderr) == (0, "")
