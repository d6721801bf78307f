# SPDX-License-Identifier: Apache-2.0
"""The peers' programs and environments: which are installed, and the command that runs one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import ROOT

PROGRAMS = ROOT / "benchmarks" / "peers"


class Environments:
    """The environments that `make peers` made; our own program runs in this one."""

    def __init__(self, folder: Path = ROOT / "build" / "peers") -> None:
        self._folder = folder

    def installed(self, program: str) -> bool:
        return program == "headrace" or (self._folder / program / ".installed").exists()

    def command(self, program: str, arguments: Sequence[str]) -> list[str]:
        """The command line that runs a peer's program in its environment."""
        python = sys.executable if program == "headrace" else str(self._folder / program / "bin" / "python")
        return [python, str(PROGRAMS / f"load_{program}.py"), *arguments]
