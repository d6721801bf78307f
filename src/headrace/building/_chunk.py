# SPDX-License-Identifier: Apache-2.0
"""What one worker does: it encodes a chunk of samples, waits to be told its place in the shard, and writes it there.

Samples differ in cost and in size, and a shard's bytes must not depend on who was faster. So encoding and placing are
two steps: a worker says how large its chunk has become; once the sizes of all earlier chunks of the shard are known,
it is told its offset and writes. Nothing but small messages goes through the coordinator.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.building._convert import BadSample, StoredSample, convert
from headrace.building._options import Conversion
from headrace.records.arrays import make_array
from headrace.records.layout import aligned
from headrace.records.schema import MAX_KEY_BYTES, arrow_schema
from headrace.records.schema import columns as schema_columns

if TYPE_CHECKING:
    from headrace.sources import Item, Source

MAX_REASON = 300


@dataclass(frozen=True, slots=True)
class Task:
    """Samples to encode: items that the worker loads, or samples that are loaded already."""

    number: int
    shard: int
    path: str
    """The temporary file of the shard."""
    items: Sequence[Item] = ()
    samples: Sequence[tuple[str, Mapping[str, Any] | Exception]] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the chunk of that number goes."""

    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stop:
    """There is nothing more to do."""


@dataclass(frozen=True, slots=True)
class Sized:
    number: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Written:
    number: int
    rows: bytes
    """A record batch as an Arrow stream."""
    n_rows: int
    skipped: tuple[tuple[str, str], ...]
    lossy: int = 0
    """Samples with an image that the source has in a lossy format."""


@dataclass(frozen=True, slots=True)
class Failed:
    number: int
    message: str
    is_sample: bool = False
    """A sample cannot be stored; otherwise it is the destination, or a fault of ours."""


class Worker:
    """The state of one worker: its source, and the chunks that wait for their place."""

    def __init__(self, conversion: Conversion, source: Source | None) -> None:
        self._conversion = conversion
        self._source = source
        self._schema = arrow_schema(conversion.fields)
        self._waiting: dict[int, _Chunk] = {}

    def answer(self, message: Task | Place) -> Sized | Written | Failed:
        """Do what a message asks."""
        try:
            if isinstance(message, Task):
                chunk = self._waiting[message.number] = self._encode(message)
                return Sized(message.number, chunk.n_bytes)
            chunk = self._waiting.pop(message.number)
            chunk.write(message.offset)
            batch = chunk.batch(message.offset, self._schema)
            lossy = sum(sample.was_lossy for sample in chunk.samples)
            return Written(message.number, batch, len(chunk.samples), tuple(chunk.skipped), lossy)
        except _StoppedBySample as error:
            return Failed(message.number, str(error), is_sample=True)
        except OSError as error:
            return Failed(message.number, f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
        except Exception as error:  # noqa: BLE001  # whatever it is, the build must end and say so, not hang
            return Failed(message.number, f"unexpected {type(error).__name__}: {error}")

    def _encode(self, task: Task) -> _Chunk:
        chunk = _Chunk(task.path, task.shard, self._conversion)
        for item in task.items:
            chunk.add(item.key, lambda item=item: self._source.load(item))  # type: ignore[misc,union-attr]
        for key, sample in task.samples:
            chunk.add(key, lambda sample=sample: _loaded(sample))  # type: ignore[misc]
        return chunk


def _loaded(sample: Mapping[str, Any] | Exception) -> Mapping[str, Any]:
    if isinstance(sample, Exception):
        raise sample
    return sample


class _StoppedBySample(Exception):  # ends the build; never seen outside
    pass


class _Chunk:
    """Converted samples with offsets that count from the chunk's own start."""

    def __init__(self, path: str, shard: int, conversion: Conversion) -> None:
        self._path, self._shard, self._conversion = path, shard, conversion
        self.samples: list[StoredSample] = []
        self.offsets: list[list[int]] = []
        self.skipped: list[tuple[str, str]] = []
        self.n_bytes = 0

    def add(self, key: str, load: Callable[[], Mapping[str, Any]]) -> None:
        try:
            stored = convert(key, load(), self._conversion)
        except MemoryError:
            raise
        except Exception as error:  # importers use other people's parsers, which raise anything over damaged files
            reason = str(error) if isinstance(error, BadSample) else f"{type(error).__name__}: {error}"
            if not self._conversion.skip_bad:
                raise _StoppedBySample(f"sample {key!r}: {_valid(reason)}") from error
            self.skipped.append((_valid(key[:MAX_KEY_BYTES]), _valid(reason[:MAX_REASON])))
            return
        offsets = []
        for data in stored.renditions:
            offsets.append(self.n_bytes)
            self.n_bytes += aligned(len(data), self._conversion.align)
        self.samples.append(stored)
        self.offsets.append(offsets)

    def write(self, base: int) -> None:
        """Write the renditions; what lies between them stays a hole, which reads as zero."""
        # No O_CREAT: if the file is gone, another builder has taken over.
        handle = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for stored, offsets in zip(self.samples, self.offsets, strict=True):
                for data, offset in zip(stored.renditions, offsets, strict=True):
                    _write_all(handle, memoryview(data), base + offset)
        except OSError as error:
            error.filename = self._path
            raise
        finally:
            os.close(handle)

    def batch(self, base: int, schema: pa.Schema) -> bytes:
        """Give the rows as an Arrow stream, with offsets that count from the shard's start."""
        columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        slots = [(field, number) for field in self._conversion.fields for number in range(field.renditions)]
        for stored, offsets in zip(self.samples, self.offsets, strict=True):
            for (field, number), offset in zip(slots, offsets, strict=True):
                columns[field.rendition_column(number, "shard")].append(self._shard)
                columns[field.rendition_column(number, "offset")].append(base + offset)
            for name, value in stored.row.items():
                columns[name].append(value)
        kinds = schema_columns(self._conversion.fields)
        arrays = [make_array(kind, columns[name], schema.field(name).type) for name, kind in kinds]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.record_batch(arrays, schema=schema))
        return bytes(memoryview(sink.getvalue()))


def _valid(text: str) -> str:
    """Text that JSON and UTF-8 can hold: lone surrogates become escapes."""
    return text.encode(errors="backslashreplace").decode()


def _write_all(handle: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written
