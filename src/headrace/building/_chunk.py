# SPDX-License-Identifier: Apache-2.0
"""One worker: it encodes a chunk of samples, and writes it to the shard once its offset is known.

A shard's bytes must not depend on which worker was faster, so encoding and writing are two steps. The worker reports
the size of an encoded chunk. Once the sizes of all earlier chunks of the shard are known, the coordinator sends the
chunk's offset, and the worker writes it. Only small messages go through the coordinator.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from headrace.building._convert import BadSample, StoredSample, convert
from headrace.building._options import Conversion
from headrace.records.index.arrays import make_array
from headrace.records.schema import MAX_KEY_BYTES, arrow_schema
from headrace.records.schema import columns as schema_columns
from headrace.records.shards.layout import aligned
from headrace.sources import Item

if TYPE_CHECKING:
    from headrace.sources import Source

MAX_REASON = 300

Pending: TypeAlias = Item | Mapping[str, Any] | Exception
"""An item that the worker loads, a sample that is already loaded, or the error of loading it."""


@dataclass(frozen=True, slots=True)
class EncodeChunk:
    """Encode these samples, given with their keys."""

    number: int
    shard: int
    path: str
    """Temporary file of the shard."""
    samples: Sequence[tuple[str, Pending]]


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Write the encoded chunk with this number at an offset of its shard."""

    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class ChunkEncoded:
    number: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class ChunkWritten:
    number: int
    rows: bytes
    """A record batch as an Arrow stream."""
    n_rows: int
    skipped: tuple[tuple[str, str], ...]
    lossy: int = 0
    """Number of samples with an image that is lossy in the source."""


@dataclass(frozen=True, slots=True)
class ChunkFailed:
    number: int
    message: str
    is_sample: bool = False
    """True if a sample cannot be stored; False for errors of the destination and bugs."""


class Worker:
    """State of one worker: its source, and the encoded chunks that wait for their offsets."""

    def __init__(self, conversion: Conversion, source: Source | None) -> None:
        self._conversion = conversion
        self._source = source
        self._schema = arrow_schema(conversion.fields)
        self._encoded: dict[int, _EncodedChunk] = {}

    def reply(self, message: EncodeChunk | WriteChunk) -> ChunkEncoded | ChunkWritten | ChunkFailed:
        """Carry out a message; errors are returned, not raised."""
        try:
            if isinstance(message, EncodeChunk):
                chunk = self._encoded[message.number] = self._encode(message)
                return ChunkEncoded(message.number, chunk.n_bytes)
            chunk = self._encoded.pop(message.number)
            chunk.write(message.offset)
            rows = chunk.rows(message.offset, self._schema)
            lossy = sum(sample.was_lossy for sample in chunk.samples)
            return ChunkWritten(message.number, rows, len(chunk.samples), tuple(chunk.skipped), lossy)
        except BadSample as error:
            return ChunkFailed(message.number, str(error), is_sample=True)
        except OSError as error:
            return ChunkFailed(message.number, f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
        except Exception as error:  # noqa: BLE001  # any other error must end the build with a message, not hang it
            return ChunkFailed(message.number, f"unexpected {type(error).__name__}: {error}")

    def _encode(self, message: EncodeChunk) -> _EncodedChunk:
        chunk = _EncodedChunk(message.path, message.shard, self._conversion)
        for key, pending in message.samples:
            chunk.add(key, partial(self._load, pending))
        return chunk

    def _load(self, pending: Pending) -> Mapping[str, Any]:
        if isinstance(pending, Exception):
            raise pending
        if not isinstance(pending, Item):
            return pending
        assert self._source is not None
        return self._source.load(pending)


class _EncodedChunk:
    """Converted samples, with offsets relative to the start of the chunk."""

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
        except Exception as error:  # importers use third-party parsers, which may raise anything on damaged files
            reason = str(error) if isinstance(error, BadSample) else f"{type(error).__name__}: {error}"
            if not self._conversion.skip_bad:
                raise BadSample(f"sample {key!r}: {_as_utf8(reason)}") from error
            self.skipped.append((_as_utf8(key[:MAX_KEY_BYTES]), _as_utf8(reason[:MAX_REASON])))
            return
        offsets = []
        for data in stored.renditions:
            offsets.append(self.n_bytes)
            self.n_bytes += aligned(len(data), self._conversion.align)
        self.samples.append(stored)
        self.offsets.append(offsets)

    def write(self, base: int) -> None:
        """Write the renditions; the gaps between them are not written and read as zero."""
        # No O_CREAT: if the file is gone, another process has taken over the build.
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

    def rows(self, base: int, schema: pa.Schema) -> bytes:
        """Return the index rows as an Arrow stream, with offsets relative to the start of the shard."""
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


def _as_utf8(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by escapes."""
    return text.encode(errors="backslashreplace").decode()


def _write_all(handle: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written
