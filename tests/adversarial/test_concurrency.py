# SPDX-License-Identifier: Apache-2.0
"""Many threads may decode at once, other Python threads run meanwhile, and a forked child can go on decoding."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.codec.implementations import MODES, NATIVES, Mode, Native, forced
from tests.codec.pictures import DTYPES, Recipe

import headrace
import headrace.codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORK = """
import os, sys
import numpy as np
import headrace
image = np.random.default_rng(0).integers(0, 256, (300, 700, 3), np.uint8)
data = headrace.encode(image, threads=2)
assert np.array_equal(headrace.decode(data, threads=2), image)
child = os.fork()
if child == 0:
    right = np.array_equal(headrace.decode(data, threads=2), image) and headrace.encode(image, threads=2) == data
    os._exit(0 if right else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@contextmanager
def ticking() -> Iterator[list[int]]:
    """A Python thread that counts whenever it gets the GIL, which nobody is made to give up meanwhile."""
    ticks, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(1e-5)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    sys.setswitchinterval(60)
    try:
        yield ticks
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


@pytest.mark.parametrize("call", ["decode", "encode", "decode_many"])
def test_the_gil_is_released(call: str) -> None:
    """With a switch interval of a minute, only a call that releases the GIL lets the other thread count."""
    image = Recipe(2000, 2000, 1).render()
    data = headrace.encode(image, mode="dense")
    out = np.empty((1, 2000, 2000), np.uint8)
    calls: dict[str, Callable[[], object]] = {
        "decode": lambda: headrace.decode(data, out=out[0]),
        "encode": lambda: headrace.encode(image),
        "decode_many": lambda: headrace.codec.decode_many([data], out=out, threads=1),
    }
    with ticking() as ticks:
        for _ in range(50):
            before = ticks[0]
            calls[call]()
            if ticks[0] > before:
                return
    pytest.fail("no other thread ran during fifty calls")


def test_decodes_from_many_threads_are_right(native: Native) -> None:
    recipes = [Recipe(70, 300, 3, dtype, seed=seed) for dtype in DTYPES for seed in range(4)]
    images = [recipe.render() for recipe in recipes]
    datas = [headrace.encode(image, mode=MODES[i % 2]) for i, image in enumerate(images)]

    def work(i: int) -> bool:
        k = i % len(images)
        top, left = i % 30, i % 200
        whole = headrace.decode(datas[k], threads=1 + i % 3)
        part = headrace.decode(datas[k], region=(top, left, 40, 100))
        return np.array_equal(whole, images[k]) and np.array_equal(part, images[k][top : top + 40, left : left + 100])

    with forced(native.name), ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(300)))


def test_encodes_from_many_threads_are_right(mode: Mode) -> None:
    images = [Recipe(70, 200, 3, seed=seed).render() for seed in range(6)]
    expected = [headrace.encode(image, mode=mode) for image in images]

    with ThreadPoolExecutor(8) as pool:
        actual = list(pool.map(lambda i: headrace.encode(images[i % 6], mode=mode, threads=1 + i % 3), range(120)))

    assert all(data == expected[i % 6] for i, data in enumerate(actual))


def test_a_change_of_target_does_not_disturb_calls_under_way() -> None:
    image = Recipe(200, 600, 3).render()
    data = headrace.encode(image)
    before = headrace.codec.active_target()
    try:
        with ThreadPoolExecutor(3) as pool:
            decodes = [pool.submit(headrace.decode, data) for _ in range(150)]
            for i in range(1000):
                headrace.codec.use_target(NATIVES[i % len(NATIVES)].name)
            assert all(np.array_equal(decode.result(), image) for decode in decodes)
    finally:
        headrace.codec.use_target(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_decodes_with_threads_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr
