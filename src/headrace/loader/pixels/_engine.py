# SPDX-License-Identifier: Apache-2.0
"""Sources of the images and masks of a batch. The usual one is the C++ engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.loader._options import Options, check_rate
from headrace.loader.pixels._python_decoders import DecoderThreads, decode_next
from headrace.records import Dataset
from headrace.records.manifest import shard_name
from headrace.records.schema import FORMAT_CODES, FORMAT_NAMES
from headrace.transforms import Compiled

Rows: TypeAlias = npt.NDArray[np.int64]
Columns: TypeAlias = dict[str, npt.NDArray[Any]]
"""Columns of the index for the rows of a batch, by name."""
Samples: TypeAlias = tuple[Rows, npt.NDArray[np.bool_] | None]
"""The samples of a batch: (rows of the dataset, which of them are repeats or None)."""
Stack: TypeAlias = npt.NDArray[Any] | list[npt.NDArray[Any]] | tuple[Any, ...]
"""A field of a batch: one array if all samples have one shape, else one array per sample. With `MultiCrop`, a tuple of
these, one for each group of views."""


class PixelBatch(Protocol):
    """The images and masks of some samples, in progress. Dropping it cancels the work."""

    def wait(self, timeout: float) -> bool:
        """Wait without the GIL; True when all samples are done or have failed."""

    def take(self) -> list[Stack]:
        """Return the pixels of each field. Their memory is reused when the last view of it is gone.

        If samples differ in shape, several views of a sample are a list, and a sample that failed may be None.
        """

    def failures(self) -> list[tuple[int, int, int, str, str]]:
        """Return (position, field number, rendition number, error class name, message) for each failure."""


class PixelSource(Protocol):
    """Makes batches of pixels. If it is dropped without `close`, it ends without waiting for Python threads."""

    def submit(self, rows: Rows, epoch: int) -> PixelBatch: ...
    def stats(self) -> dict[str, Any]: ...
    def set_storage_rate(self, rate: float | None) -> None: ...
    def close(self) -> None: ...


class NoPixels:
    """The source of a loader without images and masks, and its batches."""

    def submit(self, rows: Rows, epoch: int) -> PixelBatch:
        del rows, epoch
        return self

    def wait(self, timeout: float) -> bool:
        del timeout
        return True

    def take(self) -> list[Stack]:
        return []

    def failures(self) -> list[tuple[int, int, int, str, str]]:
        return []

    def stats(self) -> dict[str, Any]:
        return {}

    def set_storage_rate(self, rate: float | None) -> None:
        pass

    def close(self) -> None:
        pass


class InlineBatch:
    """A batch that the waiting thread makes itself (`num_workers=0`)."""

    def __init__(self, batch: _core.Batch, engine: _core.Engine) -> None:
        self._batch, self._engine = batch, engine
        self.take, self.failures = batch.take, batch.failures

    def wait(self, timeout: float) -> bool:
        """Read, decode and transform for about this many seconds; True when all samples are done."""
        deadline = time.monotonic() + timeout
        while not self._batch.wait(0.0):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._engine.run_queued(left)
            decode_next(self._engine)
        return True


class EngineSource:
    """The C++ engine: its threads read, decode and transform. Python threads run the decoders that it lacks.

    All renditions of an image decode to the same pixels (spec/dataset.md §6). The engine chooses one when a thread
    takes the sample, by the current load of storage and cores.
    """

    def __init__(
        self,
        dataset: Dataset,
        names: Sequence[str],
        compiled: Compiled,
        *,
        seed: int,
        options: Options,
        shards: list[tuple[str, int]] | None = None,
    ) -> None:
        """Start it. `shards` are other files to read than those of the dataset, for `submit_columns`."""
        self._seed = seed
        self._names = tuple(names)
        self._gather = dataset.gather
        self._renditions = {field.name: range(field.renditions) for field in dataset.manifest.fields}
        self._groups = {name: compiled.core_groups(dataset.fields[name]) for name in self._names}
        identity = dataset.manifest.identity if shards is None else None
        if shards is None:
            shards = [
                (str(dataset.path / shard_name(number)), shard.n_bytes)
                for number, shard in enumerate(dataset.manifest.shards)
            ]
        # The engine refuses images of other formats than the dataset lists, and checks the identity of the dataset
        # whenever it opens a shard.
        formats = {
            FORMAT_CODES[form] for name in names for form in dataset.formats.get(name, {}) if form in FORMAT_CODES
        }
        self._engine = _core.Engine(
            shards,
            threads=options.num_workers,
            direct=options.direct_io,
            storage_rate=check_rate(options.storage_rate),
            identity=None if identity is None else (str(dataset.path / dataset.manifest.file), *identity),
            formats=sorted(formats),
        )
        self.max_batch_bytes = self._engine.max_batch_bytes  # for pixels; samples beyond it fail
        self._inline = options.num_workers == 0
        self._decoders: DecoderThreads | None = None
        if formats - _core.core_formats() and not self._inline:
            # One more than cores: while a Python thread fetches its next image, another one uses the core.
            self._decoders = DecoderThreads(self._engine, options.threads + 1)

    def submit(self, rows: Rows, epoch: int, names: Sequence[str] | None = None) -> PixelBatch:
        """Submit a batch, with one call for all its samples. Returns at once."""
        columns = self._gather.pixel_columns
        chosen = names or self._names
        renditions = [[columns(name, number, rows) for number in self._renditions[name]] for name in chosen]
        return self.submit_columns(renditions, rows, epoch, chosen)

    def submit_columns(
        self, columns: Sequence[list[Columns]], rows: Rows, epoch: int, names: Sequence[str] | None = None
    ) -> PixelBatch:
        """Submit a batch whose images are where these columns say, for each field and rendition."""
        fields = [(self._groups[name], each) for name, each in zip(names or self._names, columns, strict=True)]
        batch = self._engine.submit(fields, rows.astype(np.uint64), seed=self._seed, epoch=epoch)
        return InlineBatch(batch, self._engine) if self._inline else batch

    def stats(self) -> dict[str, Any]:
        stats = self._engine.stats()
        formats = {FORMAT_NAMES.get(code, "unknown"): figures for code, figures in stats["formats"].items()}
        return {**stats, "formats": formats}

    def set_storage_rate(self, rate: float | None) -> None:
        """Limit reads to this many bytes per second from now on."""
        self._engine.set_storage_rate(check_rate(rate))

    def close(self) -> None:
        """Cancel the work in progress and end the threads."""
        self._engine.close()
        if self._decoders is not None:
            self._decoders.join()

    def __del__(self) -> None:
        # The engine's threads take no Python lock, so waiting for them here is safe. The Python threads end later.
        engine = self.__dict__.get("_engine")
        if engine is not None:
            engine.close()


def stacked(arrays: Sequence[Any]) -> Any:
    """Stack arrays of one shape and dtype. Tensors that a device decoded are stacked there."""
    first = arrays[0]
    if isinstance(first, np.ndarray):
        return np.stack(arrays)
    whole = first.new_empty((len(arrays), *first.shape))
    for place, array in zip(whole, arrays, strict=True):
        place.copy_(array)
    return whole


def take_pixels(batch: PixelBatch) -> list[Stack]:
    """Return the pixels of a finished batch. If samples differ in shape, the views of each are stacked."""
    return [_with_stacked_views(stack) for stack in batch.take()]


def _with_stacked_views(stack: Stack) -> Stack:
    if isinstance(stack, tuple):
        return tuple(map(_with_stacked_views, stack))
    return [_stacked_views(sample) for sample in stack] if isinstance(stack, list) else stack


def _stacked_views(sample: Any) -> Any:
    if not isinstance(sample, list):
        return sample
    return None if any(view is None for view in sample) else stacked(sample)
