# SPDX-License-Identifier: Apache-2.0
"""Check the structure of an Arrow IPC file before Arrow reads any of it (spec/dataset.md §4).

Arrow's own reader trusts a file: it decompresses buffers and dictionaries, builds any schema it finds, and does not
check offsets. Here only the footer and the header of each record batch are read, both small flatbuffers. Every number
in them is compared with the size of the file and with the columns that `dataset.json` announces.

    Footer       1 schema, 2 dictionaries, 3 record batches: structs (offset i64, metadata i32, pad, body i64)
    Schema       0 endianness, 1 fields
    Field        0 name, 1 nullable, 2 type number, 3 type, 4 dictionary, 5 children
    Message      1 header number, 2 header, 3 body length
    RecordBatch  0 rows, 1 nodes: structs (length i64, nulls i64), 2 buffers: structs (offset i64, length i64),
                 3 compression, 4 counts of variadic buffers
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from headrace.records.schema import NUMBERS

MAX_HEAD_BYTES = 1 << 24
"""Limit for the footer and for the header of a record batch. With a thousand columns they have about 100 kB."""

_MAGIC = b"ARROW1"
_ALIGNMENT = 8
_RECORD_BATCH = 3
_INT, _FLOAT, _FIXED_SIZE_LIST, _LARGE_BINARY, _LARGE_STRING, _LARGE_LIST = 2, 3, 16, 19, 20, 21
_INTEGERS = {"B": (8, 0), "I": (32, 0), "Q": (64, 0), "int64": (64, 1)}

Read = Callable[[int, int], memoryview]
"""`read(offset, n_bytes)` returns bytes of a file."""


class Block(NamedTuple):
    """Position of a record batch: its header at `offset`, then its buffers."""

    offset: int
    head_bytes: int
    body_bytes: int


class Node(NamedTuple):
    """An array of a column: its number of values, its buffers without validity, and its child."""

    length: int
    buffers: tuple[tuple[int, int], ...]
    """Offset in the body of the record batch, and bytes."""
    child: Node | None = None


def read_footer(read: Read, n_bytes: int, columns: Sequence[tuple[str, str]]) -> list[Block]:
    """Check the footer of a file of `n_bytes` against the names and kinds of its columns; return the record batches.

    Raises:
        ValueError: The file is not as spec/dataset.md §4 says; the message says how.

    """
    if n_bytes < 2 * _ALIGNMENT + 10 or bytes(read(0, 6)) != _MAGIC or bytes(read(n_bytes - 6, 6)) != _MAGIC:
        raise ValueError("it must start and end with ARROW1")
    (size,) = struct.unpack("<i", read(n_bytes - 10, 4))
    if not 0 < size <= min(MAX_HEAD_BYTES, n_bytes - 18):
        raise ValueError(f"its footer must have 1 to {min(MAX_HEAD_BYTES, n_bytes - 18)} bytes; it has {size}")
    footer = _root(read(n_bytes - 10 - size, size))
    if footer.vector(2, 24):
        raise ValueError("it must not have dictionaries")
    try:
        _check_schema(footer.table(1), columns)
    except ValueError as error:
        raise ValueError(f"the columns are not those of the fields in dataset.json: {error}") from None
    blocks: list[Block] = []
    for at in footer.vector(3, 24):
        offset, head, body = struct.unpack_from("<qi4xq", footer.data, at)
        if offset < 8 or (offset | head) % _ALIGNMENT or not 8 < head <= MAX_HEAD_BYTES or body < 0:
            raise ValueError(
                f"record batch {len(blocks)} must have an aligned header of 9 to {MAX_HEAD_BYTES} bytes and a body; it "
                f"has {head} and {body} bytes at offset {offset}"
            )
        if offset + head + body > n_bytes:
            raise ValueError(f"record batch {len(blocks)} must end within the file")
        blocks.append(Block(offset, head, body))
    return blocks


def read_batch(read: Read, block: Block, columns: Sequence[tuple[str, str]], rows: int) -> list[Node]:
    """Check the header of a record batch; return its columns, whose buffers are in the batch and large enough.

    Raises:
        ValueError: The batch is not as spec/dataset.md §4 says; the message says how.

    """
    head = read(block.offset, block.head_bytes)
    mark, size = struct.unpack_from("<Ii", head)
    if mark != 0xFFFFFFFF or not 0 < size <= block.head_bytes - 8:
        raise ValueError(f"its header must have at most {block.head_bytes - 8} bytes; it has {size}")
    message = _root(head[8 : 8 + size])
    if message.number(1, "<B") != _RECORD_BATCH or message.number(3, "<q") != block.body_bytes:
        raise ValueError("its header and the footer must describe the same record batch")
    batch = message.table(2)
    if batch.position(3) is not None:
        raise ValueError("its buffers must not be compressed")
    if batch.position(4) is not None:
        raise ValueError("it must not have a variable number of buffers")
    if (found := batch.number(0, "<q")) != rows:
        raise ValueError(f"it must have {rows} rows; it has {found}")
    nodes = _Nodes(batch, block)
    found_columns = [nodes.take(kind, name, rows) for name, kind in columns]
    if nodes.has_more():
        raise ValueError("it must not have arrays beyond those of its columns")
    return found_columns


class _Nodes:
    """The nodes and buffers of a record batch, read in the order of its columns."""

    def __init__(self, batch: _Table, block: Block) -> None:
        self._data = batch.data
        self._nodes, self._buffers = iter(batch.vector(1, 16)), iter(batch.vector(2, 16))
        self._body_bytes = block.body_bytes

    def take(self, kind: str, name: str, length: int | None = None) -> Node:
        """Read the next array. `length` is the number of rows of a column, or None for a child, of any length."""
        found, nulls = self._next(self._nodes, name)
        if nulls != 0 or not 0 <= found <= self._body_bytes or length not in (None, found):
            raise ValueError(f"column {name!r} must have {length} rows and no nulls; it has {found} and {nulls}")
        self._next(self._buffers, name)  # validity: nothing is null
        if kind in NUMBERS:
            return Node(found, (self._buffer(name, found * NUMBERS[kind].itemsize),))
        if kind == "box":
            child = self.take("float32", name)
            if child.length < 4 * found:
                raise ValueError(f"column {name!r} must have four numbers per box")
            return Node(found, (), child)
        offsets = self._buffer(name, 8 * (found + 1) if found else 0)
        if kind in ("str", "bytes"):
            return Node(found, (offsets, self._buffer(name, 0)))
        return Node(found, (offsets,), self.take(item_kind(kind), name))

    def has_more(self) -> bool:
        return next(self._nodes, None) is not None or next(self._buffers, None) is not None

    def _buffer(self, name: str, min_bytes: int) -> tuple[int, int]:
        offset, n_bytes = self._next(self._buffers, name)
        if offset < 0 or offset % _ALIGNMENT or not min_bytes <= n_bytes <= self._body_bytes - offset:
            raise ValueError(
                f"column {name!r} must have an aligned buffer of at least {min_bytes} bytes in a body of "
                f"{self._body_bytes}; it has {n_bytes} bytes at {offset}"
            )
        return offset, n_bytes

    def _next(self, positions: Iterator[int], name: str) -> tuple[int, int]:
        position = next(positions, None)
        if position is None:
            raise ValueError(f"it must have all arrays of column {name!r}")
        first, second = struct.unpack_from("<qq", self._data, position)
        return first, second


def item_kind(kind: str) -> str:
    """Return the kind of the elements of `boxes` or `list<…>`."""
    return "box" if kind == "boxes" else kind[5:-1]


def _check_schema(schema: _Table, columns: Sequence[tuple[str, str]]) -> None:
    fields = schema.vector(1, 4)
    if schema.number(0, "<h") != 0:
        raise ValueError("it must be little-endian")
    if len(fields) != len(columns):
        raise ValueError(f"it must have {len(columns)} columns; it has {len(fields)}")
    for at, (name, kind) in zip(fields, columns, strict=True):
        field = schema.follow(at)
        if field.text(0) != name.encode():
            raise ValueError(f"a column must be named {name!r}; it is named {field.text(0)[:200]!r}")
        _check_field(field, kind, name)


def _check_field(field: _Table, kind: str, name: str) -> None:
    if field.number(1, "<B") or field.position(4) is not None:
        raise ValueError(f"column {name!r} must not be nullable or dictionary-coded")
    number, parameters, children = field.number(2, "<B"), field.table(3), field.vector(5, 4)
    if kind in _INTEGERS:
        found = (parameters.number(0, "<i"), parameters.number(1, "<B"))
        right = number == _INT and found == _INTEGERS[kind] and not children
    elif kind == "float32":
        right = number == _FLOAT and parameters.number(0, "<h") == 1 and not children
    elif kind == "box":
        right = number == _FIXED_SIZE_LIST and parameters.number(0, "<i") == 4 and len(children) == 1
    elif kind == "boxes" or kind.startswith("list<"):
        right = number == _LARGE_LIST and len(children) == 1
    else:
        right = number == (_LARGE_STRING if kind == "str" else _LARGE_BINARY) and not children
    if not right:
        raise ValueError(f"column {name!r} must have the type {kind!r}; it has another")
    if children:
        _check_field(field.follow(children[0]), "float32" if kind == "box" else item_kind(kind), name)


class _Table:
    """A table of a flatbuffer. Every read is checked: an offset outside the buffer raises ValueError."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data, self._at = data, at
        self._entries = at - self._unpack("<i", at)
        self._size = self._unpack("<H", self._entries)

    def _unpack(self, letters: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(letters) > len(self.data):
            raise ValueError(f"offset {at} must be within a header of {len(self.data)} bytes")
        number: int = struct.unpack_from(letters, self.data, at)[0]
        return number

    def position(self, field: int) -> int | None:
        """Return the offset of a field's value; None if the table does not have it."""
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        offset = self._unpack("<H", self._entries + entry)
        return self._at + offset if offset else None

    def number(self, field: int, letters: str) -> int:
        at = self.position(field)
        return 0 if at is None else self._unpack(letters, at)

    def follow(self, at: int) -> _Table:
        return _Table(self.data, at + self._unpack("<I", at))

    def table(self, field: int) -> _Table:
        at = self.position(field)
        if at is None:
            raise ValueError("a part of its header is missing")
        return self.follow(at)

    def vector(self, field: int, item_bytes: int) -> range:
        """Return the offsets of the items of a vector, all of which are within the buffer."""
        at = self.position(field)
        if at is None:
            return range(0)
        start = at + self._unpack("<I", at)
        length = self._unpack("<I", start)
        if start + 4 + length * item_bytes > len(self.data):
            raise ValueError(f"a list of {length} items must be within a header of {len(self.data)} bytes")
        return range(start + 4, start + 4 + length * item_bytes, item_bytes)

    def text(self, field: int) -> bytes:
        places = self.vector(field, 1)
        return bytes(self.data[places.start : places.stop])


def _root(data: Any) -> _Table:
    view = memoryview(data).cast("B")
    if len(view) < 4:
        raise ValueError(f"its header must have at least 4 bytes; it has {len(view)}")
    return _Table(view, struct.unpack_from("<I", view)[0])
