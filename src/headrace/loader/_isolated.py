# SPDX-License-Identifier: Apache-2.0
"""`isolate=True`: images and masks come from a process of their own, which never competes for the trainer's GIL.

Batches lie in memory that both processes share. A piece of it goes back to the other process when the last array that
views it is gone, so the trainer may keep as many batches as it likes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from headrace.loader._isolated_process import Process
from headrace.loader._options import Options, check_rate
from headrace.loader._pixels import PixelBatch, Rows
from headrace.records import Dataset
from headrace.transforms import Compiled


class IsolatedSource:
    """Makes batches of pixels in another process. If that dies, that is an error once; then a new one is started."""

    def __init__(
        self, dataset: Dataset, names: Sequence[str], compiled: Compiled, *, seed: int, options: Options
    ) -> None:
        plain = {field.name: getattr(options, field.name) for field in fields(Options) if field.name != "collate_fn"}
        self._order: dict[str, Any] = {
            "path": os.path.abspath(dataset.path),  # noqa: PTH100 - Path.absolute would leave `..` to the other process
            "fingerprint": dataset.fingerprint,
            "names": list(names),
            "transforms": [transform.to_json() for transform in compiled.transforms],
            "dtype": compiled.dtype,
            "seed": seed,
            "options": {**plain, "fields": list(options.fields)},
            "keep": options.batches_ahead + 2,
            "parent": os.getpid(),
        }
        self._process = Process(self._order)

    def submit(self, rows: Rows, epoch: int) -> PixelBatch:
        """Begin with a batch."""
        if self._process.dead:
            self._process.close()
            self._process = Process(self._order)
        return self._process.submit(rows, epoch)

    def stats(self) -> dict[str, Any]:
        """Give the other process' figures as of the last batch that came from it."""
        return dict(self._process.stats)

    def set_storage_rate(self, rate: float | None) -> None:
        """Read no faster than this from now on, also in a process that is started anew."""
        check_rate(rate)
        self._order["options"]["storage_rate"] = rate
        self._process.tell({"op": "storage rate", "rate": rate})

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the process; the batches that the trainer holds stay valid."""
        self._process.close()
