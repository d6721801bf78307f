# SPDX-License-Identifier: Apache-2.0
"""`headrace.Writer`: a dataset from samples that a program makes, one call per sample."""

from __future__ import annotations

import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

from headrace.building._assemble import Provenance, assemble, writer_name
from headrace.building._build import count_workers
from headrace.building._destination import BUILDING, Destination, check_destination
from headrace.building._options import SHARD_SAMPLES, OnError, describe, make_conversion
from headrace.building._pipeline import EncodePipeline, Unit
from headrace.building._report import BuildReport
from headrace.building._workers import ThreadWorkers
from headrace.errors import BuildError
from headrace.sources import Item


class Writer:
    """Writes samples to a new dataset, which is complete when the `with` block ends without an error.

        with headrace.Writer("out.hr", fields={"image": "image", "label": "int64"}) as writer:
            writer.write({"image": pixels, "label": 3})

    Images are arrays, or files as `headrace.sources.Encoded`. Threads encode while the program makes the next sample;
    `write` waits if they are behind. If the block raises, there is no dataset.
    """

    def __init__(
        self,
        dest: str | PathLike[str],
        *,
        fields: Mapping[str, str],
        classes: list[str] | None = None,
        format: str = "hri:dense",  # noqa: A002
        mask_format: str | None = None,
        plan: Mapping[str, Any] | str | PathLike[str] | None = None,
        renditions: int | None = None,
        workers: int | None = None,
        force: bool = False,
        verify: bool = True,
        on_error: OnError = "raise",
        shard_samples: int = SHARD_SAMPLES,
        align: int = 64,
    ) -> None:
        self._conversion = make_conversion(
            fields,
            format=format,
            mask_format=mask_format,
            plan=plan,
            renditions=renditions,
            align=align,
            verify=verify,
            on_error=on_error,
        )
        if shard_samples < 1:
            raise ValueError(f"shard_samples must be at least 1; got {shard_samples}")
        self._limit = shard_samples
        options = describe(self._conversion) | {"shard_bytes": None, "shard_samples": shard_samples}
        self._provenance = Provenance("writer", "", None if classes is None else tuple(classes), options)
        folder = Path(dest)
        check_destination(folder, force=force)
        if (folder / BUILDING).exists() and not force:
            raise BuildError(f"{folder} contains an unfinished build, which a Writer cannot continue; use force=True")
        identity = {**options, "source": "writer", "fields": dict(fields), "writer": writer_name()}
        self._dest = Destination(folder, identity, self._conversion.fields, resume=False, force=force)
        self._pipeline = EncodePipeline(self._dest, ThreadWorkers(count_workers(workers), self._conversion, None))
        self._start = time.perf_counter()
        self._written = 0
        self._shards = 0
        self._unit: Unit | None = None
        self._report: BuildReport | None = None

    @property
    def report(self) -> BuildReport:
        """The report of the build; available when the block has ended."""
        if self._report is None:
            raise BuildError("the dataset is not finished: read the report after the end of the with block")
        return self._report

    def write(self, sample: Mapping[str, Any], *, key: str | None = None) -> None:
        """Add a sample: a value for every field. Without a key, its number is used."""
        key = f"{self._written:08d}" if key is None else key
        if self._unit is None:
            self._unit = Unit(self._shards)
        self._unit.count(key, 0)
        self._written += 1
        self._pipeline.add(self._unit, Item(key, 0, ()), sample)
        if self._unit.items >= self._limit:
            self._end_unit()

    def _end_unit(self) -> None:
        if self._unit is not None:
            self._pipeline.end_unit()
            self._shards += 1
            self._unit = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        with self._dest:
            try:
                if error is None:
                    self._end_unit()
                    self._pipeline.drain()
            finally:
                self._pipeline.close()
            if error is None:
                fields, seconds = self._conversion.fields, time.perf_counter() - self._start
                self._report = assemble(
                    self._dest, fields, self._shards, self._provenance, seconds=seconds, new_samples=self._written
                )
