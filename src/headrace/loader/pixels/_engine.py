# SPDX-License-Identifier: Apache-2.0
"""Where the images and masks of a batch come from: the engine's threads, behind an interface that others can have."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.loader._options import Options, check_rate
from headrace.loader.pixels._python_decoders import ForeignThreads, decode_next
from headrace.loader.pixels._renditions import Renditions
from headrace.records import Dataset
from headrace.records.manifest import MANIFEST, shard_name
from headrace.records.schema import FORMAT_CODES, FORMAT_NAMES
from headrace.transforms import Compiled

Rows: TypeAlias = npt.NDArray[np.int64]
Samples: TypeAlias = tuple[Rows, npt.NDArray[np.bool_] | None]
"""Which samples a batch has: their rows of the dataset, and which of them are repeats if any are."""
Stack: TypeAlias = npt.NDArray[Any] | list[npt.NDArray[Any]]
"""A field of a batch: one array if all samples have one shape, else an array a sample."""


class PixelBatch(Protocol):
    """The images and masks of some samples, being made. What nobody holds any more is not made any further."""

    def wait(self, timeout: float) -> bool:
        """Wait without the GIL; True when all samples are done, one way or the other."""
        ...

    def take(self) -> list[Stack]:
        """Give the fields' pixels; their memory is used again when the last view of them is gone.

        Where samples differ in shape, several views of one are a list, and what has failed may be None.
        """
        ...

    def failures(self) -> list[tuple[int, int, int, str, str]]:
        """Return (position, field number, rendition number, error class name, message) for each failure."""
        ...


class PixelSource(Protocol):
    """What makes batches of pixels, in the order in which they are asked for or any other.

    One that is dropped without having been closed ends by itself, and waits for no thread of Python's.
    """

    def submit(self, rows: Rows, epoch: int) -> PixelBatch: ...
    def stats(self) -> dict[str, Any]: ...
    def set_storage_rate(self, rate: float | None) -> None: ...
    def close(self) -> None: ...


class NoPixels:
    """The source of a loader that was asked for no image and no mask."""

    def submit(self, rows: Rows, epoch: int) -> PixelBatch:
        del rows, epoch
        return _Nothing()

    def stats(self) -> dict[str, Any]:
        return {}

    def set_storage_rate(self, rate: float | None) -> None:
        pass

    def close(self) -> None:
        pass


class _Nothing:
    def wait(self, timeout: float) -> bool:
        del timeout
        return True

    def take(self) -> list[Stack]:
        return []

    def failures(self) -> list[tuple[int, int, int, str, str]]:
        return []


class InlineBatch:
    """A batch that the thread which waits for it makes itself (`num_workers=0`)."""

    def __init__(self, batch: _core.Batch, engine: _core.Engine) -> None:
        self._batch, self._engine = batch, engine

    def wait(self, timeout: float) -> bool:
        """Read, decode and transform for at most about this many seconds; True when all samples are done."""
        deadline = time.monotonic() + timeout
        while not self._batch.wait(0.0):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._engine.run_queued(left)
            decode_next(self._engine)
        return True

    def take(self) -> list[Stack]:
        return self._batch.take()

    def failures(self) -> list[tuple[int, int, int, str, str]]:
        return self._batch.failures()


class EngineSource:
    """Threads of this process: C++ reads, decodes and transforms; other people's decoders run in threads of Python."""

    def __init__(
        self, dataset: Dataset, names: Sequence[str], compiled: Compiled, *, seed: int, options: Options
    ) -> None:
        self._seed = seed
        self._names = tuple(names)
        self._gather, self._renditions = dataset.gather, Renditions(dataset)
        self._transforms = {
            name: compiled.mask if dataset.fields[name] == "mask" else compiled.image for name in self._names
        }
        self._views = compiled.views
        shards = [
            (str(dataset.path / shard_name(number)), shard.n_bytes)
            for number, shard in enumerate(dataset.manifest.shards)
        ]
        self._engine = _core.Engine(
            shards,
            threads=options.num_workers,
            direct=options.direct_io,
            storage_rate=check_rate(options.storage_rate),
            identity=_identity(dataset),
            formats=sorted(_format_codes(dataset, names)),
        )
        self._inline = options.num_workers == 0
        self._foreign: ForeignThreads | None = None
        if has_foreign(dataset, names) and not self._inline:
            # One more than cores: while a thread of Python's is on its way to the next image, another has its core.
            self._foreign = ForeignThreads(self._engine, options.threads + 1)

    @property
    def max_batch_bytes(self) -> int:
        """What the pixels of a batch may take; samples beyond it fail."""
        return self._engine.max_batch_bytes

    def columns(self, name: str, rows: Rows) -> dict[str, npt.NDArray[Any]]:
        """Tell what is loaded of a field in these rows: the columns of one rendition each."""
        return self._gather.pixel_columns(name, 0, rows)

    def submit(self, rows: Rows, epoch: int, names: Sequence[str] | None = None) -> PixelBatch:
        """Begin with a batch: one call for all its samples, whose numbers are gathered from the index at once."""
        fields = [
            (self._transforms[name], self._views, self._renditions.of(name, rows))
            for name in (self._names if names is None else names)
        ]
        batch = self._engine.submit(fields, rows.astype(np.uint64), seed=self._seed, epoch=epoch)
        return InlineBatch(batch, self._engine) if self._inline else batch

    def stats(self) -> dict[str, Any]:
        stats = self._engine.stats()
        formats = {FORMAT_NAMES.get(code, "unknown"): figures for code, figures in stats["formats"].items()}
        return {**stats, "formats": formats}

    def memory(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Give whole pages from where batches have theirs; they go back there when nothing refers to them any more."""
        pages: npt.NDArray[np.uint8] = self._engine.memory(n_bytes)
        return pages

    def set_storage_rate(self, rate: float | None) -> None:
        """Read no faster than this from now on."""
        self._engine.set_storage_rate(check_rate(rate))

    def close(self) -> None:
        """Cancel what is under way and end the threads."""
        self._engine.close()
        if self._foreign is not None:
            self._foreign.join()

    def __del__(self) -> None:
        # The engine's own threads take no lock of Python's, so they may be waited for here; the others follow alone.
        engine = self.__dict__.get("_engine")
        if engine is not None:
            engine.close()


def stacked(arrays: Sequence[Any]) -> Any:
    """One array of arrays of one shape and dtype; of tensors that a device decoded, one tensor there."""
    first = arrays[0]
    if isinstance(first, np.ndarray):
        return np.stack(arrays)
    whole = first.new_empty((len(arrays), *first.shape))
    for place, array in zip(whole, arrays, strict=True):
        place.copy_(array)
    return whole


def has_foreign(dataset: Dataset, names: Sequence[str]) -> bool:
    """Whether any stored image of these fields needs a decoder of Python's."""
    return bool(_format_codes(dataset, names) - _core.core_formats())


def _format_codes(dataset: Dataset, names: Sequence[str]) -> set[int]:
    """The formats that `dataset.json` lists for these fields. Images that the index has in another one fail."""
    return {FORMAT_CODES[form] for name in names for form in dataset.formats.get(name, {}) if form in FORMAT_CODES}


def _identity(dataset: Dataset) -> tuple[str, int, bytes] | None:
    """By what the engine recognises, when it opens a shard, that the dataset is still the one that was opened."""
    identity = dataset.manifest.identity
    return None if identity is None else (str(dataset.path / MANIFEST), *identity)
