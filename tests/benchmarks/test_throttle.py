# SPDX-License-Identifier: Apache-2.0
"""A share of the processor: the arithmetic exactly, and that a child's exit code, signals and errors come through."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from benchmarks._offload import throttle
from benchmarks._offload.throttle import LOOK_SECONDS, SAVED_SECONDS, CpuPace

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the CPU clock of another process")


def simulate(rate: float, cores: float, seconds: float, idle: tuple[float, float] = (0, 0)) -> tuple[float, float]:
    """A child that uses `cores` whenever it may, but for a while; gives its share and the longest stop."""
    now = used = longest = 0.0
    pace = CpuPace(rate, now, used)
    while now < seconds:
        pause = pace.pause(now, used)
        if pause > 0:
            now += max(pause, LOOK_SECONDS)
            longest = max(longest, pause)
        else:
            used += 0 if idle[0] <= now < idle[1] else cores * LOOK_SECONDS
            now += LOOK_SECONDS
    return used / (now - (idle[1] - idle[0])), longest


@pytest.mark.parametrize("rate", [0.01, 0.125, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("cores", [1, 3])
def test_the_share_is_exact_and_comes_in_small_slices(rate, cores):
    share, longest = simulate(rate, cores, 200)

    assert share == pytest.approx(rate, rel=0.01)
    assert longest <= cores * LOOK_SECONDS / rate


def test_time_that_was_not_used_is_not_saved_up():
    share, _ = simulate(0.25, 1, 100, idle=(20, 60))

    assert share <= 0.25 + SAVED_SECONDS / 60


def test_what_was_used_too_much_is_made_up_for():
    pace = CpuPace(0.5, 0.0, 0.0)

    assert pace.pause(1.0, 0.7) == pytest.approx(0.4)
    assert pace.pause(1.4, 0.7) == pytest.approx(0.0)


SCRIPT = """
import os, runpy, sys, time
run_throttled = runpy.run_path({path!r})["run_throttled"]

def work():
    print(os.getpid(), flush=True)
    {body}

print("code", run_throttled(0.5, work), flush=True)
"""


def run(body: str, number: int | None = None) -> tuple[list[str], str]:
    command = [sys.executable, "-c", SCRIPT.format(body=body, path=throttle.__file__)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        first = ran.stdout.readline()
        if number is not None:
            ran.send_signal(number)
        # Not communicate, which would miss what readline has read ahead.
        out, err = ran.stdout.read(), ran.stderr.read()
    return [first.strip(), *out.split("\n")], err


def test_the_exit_code_is_the_child_s():
    out, _ = run("return 7")
    assert "code 7" in out


def test_an_error_of_the_child_is_shown():
    out, err = run("raise ValueError('what it was')")
    assert "code 1" in out
    assert "what it was" in err


def test_signals_are_passed_on():
    body = "import signal; signal.signal(15, lambda *_: os._exit(9)); print('set', flush=True); time.sleep(30)"
    out, _ = run(body, signal.SIGTERM)
    assert {"code 9", f"code {-signal.SIGTERM}"} & set(out)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.125, 0.5])
def test_the_kernel_s_clock_says_the_same(rate):
    """CPU seconds over wall seconds, both as the child itself counts them; no time is waited for."""
    body = """
    begun, used = time.monotonic(), time.process_time()
    while time.monotonic() - begun < 3: pass
    print((time.process_time() - used) / (time.monotonic() - begun), flush=True)
    return 0"""
    script = SCRIPT.format(body=body, path=throttle.__file__).replace("run_throttled(0.5", f"run_throttled({rate}")
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert float(ran.stdout.split()[1]) <= rate * 1.03
