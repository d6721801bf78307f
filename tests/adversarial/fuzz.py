# SPDX-License-Identifier: Apache-2.0
"""Fuzz datasets and exchange folders: `python -m tests.adversarial.fuzz [--seconds N] [--runs N] [--out FOLDER]`.

Forgeries of every kind are used in processes of their own (`fuzz_worker.py`). A finding is a signal, a run of more than
five seconds, more than 1 GB, or an error that is not a HeadraceError; its forgery is kept, with the command that makes
it again. With HEADRACE_FUZZ_PACKAGE and LD_PRELOAD the processes have a core with sanitizers (cpp/fuzz/run.sh).
"""

from __future__ import annotations

import argparse
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.adversarial import fuzz_exchange, fuzz_forgeries, fuzz_versions

ROOT = Path(__file__).parents[2]
KINDS = (*fuzz_forgeries.KINDS, *fuzz_exchange.KINDS)
MAX_SECONDS = 5.0
START_SECONDS = 60.0
MAX_RESIDENT = 3 << 30
RUNS_PER_PROCESS = 200


@dataclass
class Campaign:
    """One fuzzing session: what is left to do, and what was found."""

    folder: Path
    out: Path
    runs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    findings: list[str] = field(default_factory=list)

    def worker(self, kind: str, first: int, count: int) -> int:
        """Let a process use some forgeries; gives the seed to go on with."""
        command = [
            sys.executable,
            "-m",
            "tests.adversarial.fuzz_worker",
            str(self.folder),
            kind,
            str(first),
            str(count),
        ]
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL
            ) as child,
        ):
            seed, reason = first, ""
            for line in _lines(child):
                if line is None:
                    reason = f"a run took more than {MAX_SECONDS:g} s, or its process more than {MAX_RESIDENT} bytes"
                    child.kill()
                    break
                what, number, *more = line.split(" ", 2)
                seed = int(number)
                if what == "run":
                    self.runs[kind] += 1
                elif what in ("raised", "memory"):
                    self._keep(kind, seed, f"{what} {more[0]}")
            code = child.wait()
            errors.seek(0)
            output = errors.read().decode(errors="replace")
        if code != 0 or reason:
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._keep(kind, seed, reason or name, output)
        return max(seed, first) + 1

    def _keep(self, kind: str, seed: int, reason: str, output: str = "") -> None:
        self.findings.append(f"{kind} {seed}: {reason}")
        print(f"finding: {self.findings[-1]}", flush=True)  # noqa: T201
        kept = self.out / f"{kind}-{seed}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for name in ("sound.hr", fuzz_versions.GROWN):
            if (self.folder / name).exists():
                shutil.copytree(self.folder / name, kept / name)
        command = f"python -m tests.adversarial.fuzz_worker {kept} {kind} {seed} 1"
        (kept / "reason.txt").write_text(f"{reason}\nAgain: {command}\n\n{output[-20_000:]}")


def _lines(child: subprocess.Popen[bytes]) -> Iterator[str | None]:
    """Give what a process prints, line by line; None when a run takes too long or too much memory."""
    assert child.stdout is not None
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ)
    pending, limit, since = b"", START_SECONDS, time.monotonic()
    while True:
        if selector.select(0.25):
            part = os.read(child.stdout.fileno(), 1 << 16)
            if not part:
                return
            *whole, pending = (pending + part).split(b"\n")
            limit, since = MAX_SECONDS, time.monotonic()
            yield from (line.decode() for line in whole)
        elif time.monotonic() - since > limit or _resident(child.pid) > MAX_RESIDENT:
            yield None


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def run(out: Path, *, seconds: float = 0, runs: int = 0, kinds: tuple[str, ...] = KINDS, seed: int = 0) -> Campaign:
    """Use forgeries of all kinds in turn until both limits are reached."""
    with tempfile.TemporaryDirectory() as folder:
        fuzz_forgeries.make_sound(Path(folder))
        campaign = Campaign(Path(folder), out)
        end, turn = time.monotonic() + seconds, 0
        nexts = dict.fromkeys(kinds, seed)
        while (done := sum(campaign.runs.values())) < runs or time.monotonic() < end:
            kind = kinds[turn % len(kinds)]
            turn += 1
            count = RUNS_PER_PROCESS
            if time.monotonic() >= end:
                count = min(count, max(1, -(-(runs - done) // max(1, len(kinds) - (turn - 1) % len(kinds)))))
            nexts[kind] = campaign.worker(kind, nexts[kind], count)
    return campaign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0, help="Run at least this long (default 0).")
    parser.add_argument("--runs", type=int, default=0, help="Use at least this many forgeries (default 0).")
    parser.add_argument("--out", type=Path, default=ROOT / "build/fuzz/findings", help="Where findings are kept.")
    parser.add_argument("--seed", type=int, default=int(time.time()) << 20, help="First seed (default: the time).")
    parser.add_argument("--kinds", default=",".join(KINDS), help="Kinds of forgeries (default all).")
    options = parser.parse_args()
    campaign = run(
        options.out,
        seconds=options.seconds,
        runs=options.runs,
        kinds=tuple(options.kinds.split(",")),
        seed=options.seed,
    )
    counts = ", ".join(f"{kind} {count}" for kind, count in campaign.runs.items())
    print(f"datasets: {sum(campaign.runs.values())} runs ({counts}), {len(campaign.findings)} findings")  # noqa: T201
    sys.exit(bool(campaign.findings) or not sum(campaign.runs.values()))


if __name__ == "__main__":
    main()
