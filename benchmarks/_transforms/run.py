# SPDX-License-Identifier: Apache-2.0
"""One run of one library on one recipe: a process tree, held to as many cores as it has workers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks._loaders.cases import RAISED_THRESHOLDS
from benchmarks._transforms.cases import Library, Recipe

_TIMEOUT_SECONDS = 1800
SIZE = 224
SEED = 7


class RunFailed(Exception):
    """A program ended with an error, or did not do the work that was asked for."""


def run(library: Library, recipe: Recipe, store: Path, *, batch_size: int, epochs: int, workers: int) -> dict[str, Any]:
    """Return CPU milliseconds and seconds per image of all epochs but the first, which warms up; and its libraries."""
    options = {"crop": "random-resized", "size": SIZE, "batch-size": batch_size, "workers": workers}
    options |= {"epochs": epochs + 1, "seed": SEED, "variant": recipe.name}
    arguments = ["run", str(store), *(f"--{name}={value}" for name, value in options.items())]
    with machine.held_to(workers):
        done = subprocess.run(  # noqa: S603 - our own arguments
            [*library.command(), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            env=os.environ | (RAISED_THRESHOLDS if library.program == "timm" else {}),
        )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RunFailed(f"{library.label}, {recipe.name}: {lines[-1] if lines else 'no message'}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["shapes"] != [[3, SIZE, SIZE]] or found["dtypes"] != ["float32"]:
        raise RunFailed(f"{library.label}, {recipe.name} returned {found['dtypes']} of {found['shapes']}")
    first, last = found["epochs"][0], found["epochs"][-1]
    images = last["images"] - first["images"]
    return {
        "cpu_ms": 1e3 * (last["cpu_seconds"] - first["cpu_seconds"]) / images,
        "ms": 1e3 * (last["seconds"] - first["seconds"]) / images,
        "libraries": found["libraries"],
    }
