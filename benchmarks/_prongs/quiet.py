# SPDX-License-Identifier: Apache-2.0
"""Tells when a core was quiet: a process on each core takes a short sample of reference work now and then.

`python benchmarks/_prongs/quiet.py CORE LOG` runs until it is ended; it is started by `watched`. It takes a hundredth
of its core, all the time, so that what is measured beside it is measured on equal terms. Samples go to a file, with the
system's monotonic clock, which all processes share.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

import numpy as np

from benchmarks import machine
from headrace import codec

QUIET = 1.12
"""At most so many times the fastest: caches and timers account for that much on a core without neighbours."""
EVERY_SECONDS = 0.05
_EDGE = 96
_WARMING, _DECODES = 6, 16  # together some half a millisecond; the first ones bring the caches back
_RECORD = Struct("<dd")  # when, and CPU seconds
_LEAST_SAMPLES = 3
_LEAST_PART = 0.6  # of the samples that a stretch should have: fewer say that processes were stopped
_FIRST_SECONDS = 1.0


class Log:
    """The samples of one core so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times: list[float] = []
        self._samples: list[float] = []

    def read_on(self) -> None:
        """Read what has been added."""
        with self._path.open("rb") as file:
            file.seek(len(self._times) * _RECORD.size)
            content = file.read()
        whole = len(content) // _RECORD.size * _RECORD.size
        for when, seconds in _RECORD.iter_unpack(content[:whole]):
            self._times.append(when)
            self._samples.append(seconds)

    def pace(self, begin: float, end: float) -> float | None:
        """How many times as long as at best the samples between two moments took, in the mean; None if too few are."""
        first, last = bisect.bisect_left(self._times, begin), bisect.bisect_right(self._times, end)
        if last - first < max(_LEAST_SAMPLES, _LEAST_PART * (end - begin) / EVERY_SECONDS):
            return None
        return sum(self._samples[first:last]) / (last - first) / min(self._samples)


def is_quiet(paces: list[float | None]) -> bool:
    """Whether all of these cores were."""
    return all(pace is not None and pace <= QUIET for pace in paces)


@contextlib.contextmanager
def watched(core: int, log: Path) -> Iterator[Path]:
    """Have a core's samples written to a file."""
    log.touch()
    process = subprocess.Popen([sys.executable, str(Path(__file__).resolve()), str(core), str(log)])  # noqa: S603
    try:
        while log.stat().st_size < _RECORD.size * round(_FIRST_SECONDS / EVERY_SECONDS):
            if process.poll() is not None:
                raise RuntimeError(f"the process that watches core {core} has ended")
            time.sleep(0.05)
        yield log
    finally:
        process.terminate()
        process.wait(20)


def _watch(core: int, log: Path) -> None:
    machine.pin([core])
    slopes = np.add.outer(np.arange(_EDGE), 2 * np.arange(_EDGE))[..., None] // 2
    noise = np.random.default_rng(0).integers(0, 16, (_EDGE, _EDGE, 3))
    picture = codec.encode((slopes + noise).astype(np.uint8))
    parent = os.getppid()
    with log.open("ab", buffering=0) as file:
        while os.getppid() == parent:  # one that was killed cannot end this process
            time.sleep(EVERY_SECONDS)
            for _ in range(_WARMING):
                codec.decode(picture)
            begun = time.thread_time()
            for _ in range(_DECODES):
                codec.decode(picture)
            file.write(_RECORD.pack(time.monotonic(), time.thread_time() - begun))


if __name__ == "__main__":
    _watch(int(sys.argv[1]), Path(sys.argv[2]))
