# SPDX-License-Identifier: Apache-2.0
"""`headrace.Writer`: a dataset from samples that a program makes, one call each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

from headrace.building._assemble import Effort, Provenance, assemble, writer_name
from headrace.building._build import count_workers, prepare
from headrace.building._crew import ThreadCrew
from headrace.building._feed import CHUNK_BYTES, CHUNK_SAMPLES, sample_bytes
from headrace.building._options import SHARD_SAMPLES, OnError, describe, make_conversion
from headrace.building._pipeline import Pipeline, Unit
from headrace.building._report import BuildReport
from headrace.building._site import BUILDING, Site
from headrace.errors import BuildError


class Writer:
    """Writes samples to a new dataset, which is there when the `with` block ends well.

        with headrace.Writer("out.hr", fields={"image": "image", "label": "int64"}) as writer:
            writer.write({"image": pixels, "label": 3})

    Images are arrays, or `headrace.sources.Encoded` files. Encoding goes on in threads while the program makes the next
    sample; `write` waits when they are behind. A block that ends in an error leaves no dataset.
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
            raise ValueError(f"shard_samples is at least 1, not {shard_samples}")
        self._limit = shard_samples
        self._options = describe(self._conversion) | {"shard_bytes": None, "shard_samples": shard_samples}
        self._classes = None if classes is None else tuple(classes)
        folder = Path(dest)
        prepare(folder, force=force)
        if (folder / BUILDING).exists() and not force:
            raise BuildError(f"{folder} holds an unfinished build, which a Writer cannot go on with; use force=True")
        identity = {**self._options, "source": "writer", "fields": dict(fields), "writer": writer_name()}
        self._site = Site(folder, identity, self._conversion.fields, resume=False, force=force)
        self._pipeline = Pipeline(self._site, ThreadCrew(count_workers(workers), self._conversion, None))
        self._start = time.perf_counter()
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []
        self._waiting_bytes = 0
        self._written = 0
        self._shards = 0
        self._unit: Unit | None = None
        self._report: BuildReport | None = None

    @property
    def report(self) -> BuildReport:
        """What was written; there when the block has ended."""
        if self._report is None:
            raise BuildError("the dataset is not finished yet: its report comes with the end of the with block")
        return self._report

    def write(self, sample: Mapping[str, Any], *, key: str | None = None) -> None:
        """Add a sample: a value for every field. Without a key its number serves as one."""
        key = f"{self._written:08d}" if key is None else key
        if self._unit is None:
            self._unit = Unit(self._shards)
        self._unit.count(key, 0)
        self._waiting.append((key, sample))
        self._waiting_bytes += sample_bytes(sample)
        self._written += 1
        is_full = self._unit.items >= self._limit
        if is_full or self._waiting_bytes >= CHUNK_BYTES or len(self._waiting) >= CHUNK_SAMPLES:
            self._flush()
        if is_full:
            self._end_unit()

    def _flush(self) -> None:
        if self._unit is not None and self._waiting:
            self._pipeline.put(self._unit, 0, samples=self._waiting)
        self._waiting, self._waiting_bytes = [], 0

    def _end_unit(self) -> None:
        if self._unit is not None:
            self._flush()
            self._pipeline.end_unit()
            self._shards += 1
            self._unit = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        with self._site:
            try:
                if error is None:
                    self._end_unit()
                    self._pipeline.drain()
            finally:
                self._pipeline.close()
            if error is None:
                provenance = Provenance("writer", "", self._classes, self._options)
                effort = Effort(time.perf_counter() - self._start, self._written, 0)
                self._report = assemble(self._site, self._conversion.fields, self._shards, provenance, effort)
