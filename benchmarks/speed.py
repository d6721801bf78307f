# SPDX-License-Identifier: Apache-2.0
"""How fast a core is, from moment to moment: one small piece of work, timed some thirty times a second all along.

On a shared machine a neighbour on the same physical core slows everything, for milliseconds or for minutes, and no
counter tells. So each core has a probe beside the measurement, which takes a little of it from every contender
alike, and a clock that runs slower whenever the probe finds the core slower: what it shows are seconds at
full speed. Full speed is the best that is seen in some seconds beforehand.

What is emulated, such as storage at a rate or a trainer that takes its time, should go by the same clock. Then all of
a machine slows together, and figures in seconds at full speed are those of a machine that nobody shares.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import machine

_STATE = struct.Struct("=ddd")  # when it was written, seconds at full speed until then, the speed since
_PAUSE = 0.03
_TRIALS = 400
_BEST = 0.03  # of the trials are as fast as the core can be


class Clock:
    """Seconds at full speed, of a core that has a probe, or of several on average."""

    def __init__(self, *paths: Path) -> None:
        self._states = []
        for path in paths:
            with path.open("rb") as file:
                self._states.append(mmap.mmap(file.fileno(), _STATE.size, access=mmap.ACCESS_READ))

    @property
    def runs(self) -> bool:
        """Whether its probes have begun."""
        return all(_consistent(state)[0] > 0 for state in self._states)

    @property
    def speed(self) -> float:
        """As it was found last."""
        return fmean(_consistent(state)[2] for state in self._states)

    def now(self) -> float:
        """Seconds at full speed, from an arbitrary beginning."""
        found = map(_consistent, self._states)
        return fmean(seconds + speed * (time.perf_counter() - written) for written, seconds, speed in found)


def _consistent(state: mmap.mmap) -> tuple[float, float, float]:
    """Read a state twice: the probe may be writing it."""
    while (read := state[:]) != state[:]:
        pass
    written, seconds, speed = _STATE.unpack(read)
    return written, seconds, speed


@contextmanager
def clocks(folder: Path, cores: list[int]) -> Iterator[dict[int, Path]]:
    """Have a probe on each core; gives the files from which clocks, of any process, read."""
    unit = _unit()
    paths = {core: folder / f"speed-{core}" for core in cores}
    probes = []
    try:
        for core, path in paths.items():
            path.write_bytes(bytes(_STATE.size))
            probes.append(machine.start_on(core, [sys.executable, __file__, str(path), repr(unit)]))
        while not all(Clock(path).runs for path in paths.values()):
            if any(probe.poll() is not None for probe in probes):
                raise RuntimeError("a probe of a core's speed has ended before it began")
            time.sleep(_PAUSE)
        yield paths
    finally:
        for probe in probes:
            probe.terminate()
            probe.wait()


def _unit() -> float:
    """CPU seconds of the piece of work at about full speed."""
    seconds = []
    for _ in range(_TRIALS):
        seconds.append(_timed())
        time.sleep(_PAUSE)
    return sorted(seconds)[int(_BEST * len(seconds))]


# Inflating resembles what decoders do: branches, tables, copies.
_WORK = zlib.compress(b"".join(struct.pack("<I", number * number // 97) for number in range(2400)))


def _timed() -> float:
    """CPU seconds of the piece of work, with warm caches: not their loss is looked for, but a neighbour."""
    zlib.decompress(_WORK)
    begun = time.thread_time()
    zlib.decompress(_WORK)
    zlib.decompress(_WORK)
    return time.thread_time() - begun


def _probe(path: Path, unit: float) -> None:
    """Keep a core's state up to date until whoever asked for it is gone."""
    parent = os.getppid()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), _STATE.size) as state:
        seconds, last = 0.0, time.perf_counter()
        while os.getppid() == parent:
            speed = unit / _timed()
            now = time.perf_counter()
            seconds, last = seconds + speed * (now - last), now
            state[:] = _STATE.pack(now, seconds, speed)
            time.sleep(_PAUSE)


if __name__ == "__main__":
    _probe(Path(sys.argv[1]), float(sys.argv[2]))
