# SPDX-License-Identifier: Apache-2.0
"""Sources of the images and masks of a batch. The usual one is the C++ engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.loader._options import Options, check_rate
from headrace.loader.pixels._python_decoders import DecoderThreads, decode_next
from headrace.records import Dataset
from headrace.records.manifest import shard_name
from headrace.records.schema import FORMAT_CODES, FORMAT_NAMES
from headrace.transforms import Compiled

if TYPE_CHECKING:
    from headrace.loader.pixels._parted import PartTransforms

Rows: TypeAlias = npt.NDArray[np.int64]
Columns: TypeAlias = dict[str, npt.NDArray[Any]]
"""Columns of the index for the rows of a batch, by name."""
Samples: TypeAlias = tuple[Rows, npt.NDArray[np.bool_] | None]
"""The samples of a batch: (rows of the dataset, which of them are repeats or None)."""
Stack: TypeAlias = npt.NDArray[Any] | list[npt.NDArray[Any]] | tuple[Any, ...]
"""A field of a batch: one array if all samples have one shape, else one array per sample. With `MultiCrop`, a tuple of
these, one for each group of views."""
FieldPart: TypeAlias = tuple[str, list[tuple[_core.Transform, int]] | int, Rows]
"""What one array of a batch is made of: (field, transforms and their numbers of views or a tensor's bytes, rows)."""


class PixelBatch(Protocol):
    """The images, masks and tensors of some samples, in progress. Dropping it cancels the work."""

    def wait(self, timeout: float) -> bool:
        """Wait without the GIL; True when all samples are done or have failed."""

    def take(self) -> list[Stack]:
        """Return the pixels of each field; of tensors the bytes, `[samples, bytes]`.

        Their memory is reused when the last view of it is gone.

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
        parted: PartTransforms | None = None,
        shards: list[tuple[str, int]] | None = None,
    ) -> None:
        """Start it. `shards` are other files to read than those of the dataset, for `submit_columns`."""
        self._seed, self._parted, self._types = seed, parted, dataset.fields
        self._names = tuple(names)
        self._gather = dataset.gather
        self._renditions = {field.name: range(field.renditions) for field in dataset.manifest.fields}
        boxes = [name for name, kind in dataset.fields.items() if kind == "boxes"]
        needs_boxes = compiled.needs_boxes or (parted is not None and parted.needs_boxes)
        self._boxes = boxes[0] if needs_boxes else None  # exactly one: check_fields
        self._tensors = {field.name: field.tensor.n_bytes for field in dataset.manifest.fields if field.is_tensor}
        self._groups = {name: self._groups_of(name, compiled) for name in self._names}
        owners = dataset.parts if shards is None else ()
        identities = [(part.path / part.manifest.file, part.manifest.identity) for part in owners]
        files: list[Any] = list(shards or ())
        files += [
            (str(part.path / shard_name(number)), shard.n_bytes, owner)
            for owner, part in enumerate(owners)
            for number, shard in enumerate(part.manifest.shards)
        ]
        # The engine refuses images of other formats than the dataset lists, and checks the identity of the dataset
        # whenever it opens a shard.
        formats = {
            FORMAT_CODES[form] for name in names for form in dataset.formats.get(name, {}) if form in FORMAT_CODES
        }
        self._engine = _core.Engine(
            files,
            threads=options.num_workers,
            direct=options.direct_io,
            storage_rate=check_rate(options.storage_rate),
            identity=[None if own is None else (str(path), *own) for path, own in identities],
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
        if self._parted is not None:
            from headrace.loader.pixels._parted import PartedBatch  # noqa: PLC0415 - it imports this module

            batches = []
            for compiled, positions in self._parted.groups(rows):
                own = rows[positions]
                parts = [(name, self._groups_of(name, compiled), own) for name in self._names]
                batches.append((self.submit_parts(parts, own, epoch), positions))
            return PartedBatch(len(rows), batches)
        return self.submit_parts([(name, self._groups[name], rows) for name in names or self._names], rows, epoch)

    def _groups_of(self, name: str, compiled: Compiled) -> Any:
        """Return how a field is made: groups of views, or the bytes of a tensor."""
        return self._tensors.get(name) or compiled.core_groups(self._types[name])

    def submit_parts(self, parts: Sequence[FieldPart], rows: Rows, epoch: int) -> PixelBatch:
        """Submit a batch whose images may be those of other rows; the draws are those of `rows`."""
        columns = self._gather.pixel_columns
        fields = [
            (groups, [columns(name, number, stored) for number in self._renditions[name]])
            for name, groups, stored in parts
        ]
        return self._submit(fields, rows, epoch)

    def submit_columns(self, columns: Sequence[list[Columns]], rows: Rows, epoch: int) -> PixelBatch:
        """Submit a batch whose images are where these columns say, for each field and rendition."""
        made = [self._groups[name] for name in self._names]
        return self._submit([*zip(made, columns, strict=True)], rows, epoch)

    def _submit(self, parts: list[tuple[Any, list[Columns]]], rows: Rows, epoch: int) -> PixelBatch:
        # Tensors have one rendition.
        fields = [(how, each[0] if isinstance(how, int) else each) for how, each in parts]
        boxes = None if self._boxes is None else self._boxes_of(rows)
        batch = self._engine.submit(fields, rows.astype(np.uint64), seed=self._seed, epoch=epoch, boxes=boxes)
        return InlineBatch(batch, self._engine) if self._inline else batch

    def _boxes_of(self, rows: Rows) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the boxes of samples, for crops that depend on them: (the end of each sample's, all corners)."""
        corners = [each.xyxy.reshape(-1, 4) for each in self._gather.values(str(self._boxes), rows)]
        ends = np.cumsum([len(each) for each in corners], dtype=np.int64)
        return ends, np.ascontiguousarray(np.concatenate([np.empty((0, 4)), *corners]), np.float32)

    def memory(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Return memory of the pool, which is used again when the last view of it is gone."""
        block: npt.NDArray[np.uint8] = self._engine.memory(n_bytes)
        return block

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
