# SPDX-License-Identifier: Apache-2.0
"""Run one job with several trainers in one process, since their imports take longer than the runs.

Each trainer writes to a folder of its own. What it raises is written there too, as `error`.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from tests.integrations.runs.job import Job, Killed

if __name__ == "__main__":
    job = Job(**json.loads(sys.argv[1]))
    for trainer in sys.argv[2:]:
        folder = Path(job.path(trainer))
        folder.mkdir()
        own = replace(job, folder=str(folder))
        try:
            train = import_module(f"tests.integrations.runs.{trainer}").train
            try:
                train(own)
            except Killed:
                train(replace(own, part=1, kill_after=None))
        except Exception:  # noqa: BLE001 - the test of this trainer shows it
            (folder / "error").write_text(traceback.format_exc())
