# SPDX-License-Identifier: Apache-2.0
"""Use forgeries in a process of its own: `fuzz_worker.py FOLDER KIND FIRST COUNT`. `fuzz.py` watches it.

It prints a line before each run (`run SEED`), and one for each error that is not ours (`raised SEED ...`) or for too
much memory (`memory SEED ...`). FOLDER holds the sound dataset.
"""

from __future__ import annotations

import os
import resource
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MAX_BYTES = 1 << 30


def use_sanitized_package() -> None:
    """Import headrace from the folder that holds a core with sanitizers, not from the editable install."""
    package = os.environ.get("HEADRACE_FUZZ_PACKAGE")
    if package:
        sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
        sys.path.insert(0, package)


use_sanitized_package()

from tests.adversarial import fuzz_exchange, fuzz_forgeries, fuzz_versions  # noqa: E402

import headrace  # noqa: E402
from headrace.errors import HeadraceError  # noqa: E402

# What a user has to expect of a dataset that is not there or may not be read.
OURS = (HeadraceError, FileNotFoundError, PermissionError)


def uses(path: Path) -> Iterator[Callable[[], Any]]:
    """All that people do with a dataset. Each is tried by itself: one that fails does not spare the next."""
    yield lambda: headrace.records.verify(path, workers=1)
    try:
        dataset = headrace.open(path)
    except OURS:
        return
    n = len(dataset)
    yield lambda: dataset.table.to_pylist()  # noqa: PLW0108 - `table` may raise
    yield lambda: dataset.select([0, -1]).table.to_pydict() if n else None
    yield lambda: [dataset.column(name) for name, kind in dataset.fields.items() if kind in ("int64", "float32")]
    for row in (0, n // 2, n - 1) if n else ():
        yield lambda row=row: dataset[row]
        yield lambda row=row: dataset.key(row)
        for name, kind in dataset.fields.items():
            if kind not in ("image", "mask"):
                yield lambda row=row, name=name: dataset.value(row, name)
    yield lambda: load(path, n)
    if (path / "versions").is_dir():
        yield from fuzz_versions.uses(path)


def load(path: Path, n: int) -> None:
    """Load some batches: of one size, and as they are."""
    resize = [headrace.transforms.Resize((16, 16))]
    for options in ({"transform": resize}, {}):
        with headrace.Loader(path, batch_size=max(1, min(n, 8)), num_workers=1, output="numpy", **options) as loader:
            for number, _ in enumerate(loader):
                if number == 2:
                    break


def attempt(use: Callable[[], Any], seed: int, seen: set[str]) -> None:
    """Call it; an error that is not ours is printed, once for each place."""
    try:
        use()
    except OURS:
        pass
    except Exception as error:  # noqa: BLE001 - that is what it looks for
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} {Path(frame.filename).name}:{frame.lineno}"
        if place not in seen:
            seen.add(place)
            say("raised", seed, f"{place}: {str(error)[:160]!r}")


def say(what: str, seed: int, more: str = "") -> None:
    print(what, seed, more, flush=True)  # noqa: T201


def main(folder: Path, kind: str, first: int, count: int) -> None:
    warnings.simplefilter("ignore")
    os.fsync = lambda _: None  # changes of forged datasets wait for no disk, which may take seconds on a busy machine
    sound, forged = folder / "sound.hr", folder / f"{kind}.hr"
    seen: set[str] = set()
    with fuzz_exchange.opened(sound, folder, kind) as exchange:
        at_rest = peak()
        for seed in range(first, first + count):
            say("run", seed)
            if exchange is not None:
                attempt(lambda: exchange.run(seed), seed, seen)  # noqa: B023 - called at once
            else:
                fuzz_forgeries.make(sound, forged, kind, seed)
                attempt(lambda: [attempt(use, seed, seen) for use in uses(forged)], seed, seen)  # noqa: B023
            if peak() > at_rest + MAX_BYTES:
                say("memory", seed, f"{peak() - at_rest} bytes")
                return
    say("done", first + count)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
