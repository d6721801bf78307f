# SPDX-License-Identifier: Apache-2.0
"""Fields, their types, and the columns of the index that hold them (spec/dataset.md §2 and §4)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.tensors import TensorType, is_tensor

FORMAT_CODES = {"hri:fast": 1, "hri:dense": 2, "png": 3, "jpeg": 4, "webp": 5, "raw": 6}
FORMAT_NAMES = {code: name for name, code in FORMAT_CODES.items()}
DTYPE_CODES = {"uint8": 1, "uint16": 2, "int16": 3}
ALPHA_DTYPE_CODES = {"uint8": 4, "uint16": 5}
"""Codes of images with 2 or 4 channels whose last one is alpha."""
CMYK_DTYPE_CODE = 6
"""Code of uint8 images with 4 channels in CMYK."""
DTYPE_NAMES = {
    **{code: name for codes in (DTYPE_CODES, ALPHA_DTYPE_CODES) for name, code in codes.items()},
    CMYK_DTYPE_CODE: "uint8",
}
COLOR_DTYPE_CODES = frozenset({*ALPHA_DTYPE_CODES.values(), CMYK_DTYPE_CODE})

PIXEL_TYPES = ("image", "mask")
SCALAR_TYPES = ("int64", "float32", "str", "bytes")
SHAPE_TYPES = {"keypoints": "list<list<float32>>", "polygons": "list<list<list<float32>>>"}
"""Shapes that belong to boxes and move with their image, and how they are stored: a list for each box."""
MAX_RENDITIONS = 8
MAX_KEY_BYTES = 4096
MAX_LIST_DEPTH = 4
MAX_SIDE = 65535
MAX_CHANNELS = 64
MAX_FIELDS = 1024
MAX_ROWS = 65536
"""Maximum rows of a record batch."""
ALIGNMENTS = tuple(1 << bits for bits in range(6, 17))
"""Of the renditions in a shard, in bytes: powers of two from 64 to 65536."""

# Columns of one rendition, in order, with their type as `memoryview.cast` names it.
RENDITION_COLUMNS = {
    "shard": "I",
    "offset": "Q",
    "length": "Q",
    "format": "B",
    "height": "I",
    "width": "I",
    "channels": "B",
    "dtype": "B",
    "checksum": "I",
}

# Columns of a tensor: the place and the checksum. The type of the field says everything else.
TENSOR_COLUMNS = ("shard", "offset", "length", "checksum")

# Columns of numbers, by the kind that `columns` gives them.
_CODES = {"I": "u4", "Q": "u8", "B": "u1", "int64": "i8", "float32": "f4"}
NUMBERS = {kind: np.dtype(code) for kind, code in _CODES.items()}

DEFAULT_HRI = "hri:dense"

_NAME = re.compile(r"(?!_)(?!key\Z)[^.\x00-\x1f]{1,128}")


def stored_format(text: str) -> str:
    """Return the stored format of `hri`, `jpeg:90` or `png`; raise ValueError if it is unknown."""
    if text in FORMAT_CODES:
        return text
    name = text.partition(":")[0]
    if text == "hri":
        return DEFAULT_HRI
    if name in FORMAT_CODES:
        return name
    raise ValueError(f"format must be one of {', '.join(FORMAT_CODES)}; got {text!r}")


class Boxes(NamedTuple):
    """The boxes of one sample: corners x0, y0, x1, y1 in pixels, and one label per box."""

    xyxy: npt.NDArray[np.float32]  # [N, 4]
    labels: npt.NDArray[np.int64]  # [N]


@dataclass(frozen=True, slots=True)
class Field:
    """Name and type of a field; images and masks also have a number of renditions. A tensor counts as one."""

    name: str
    type: str
    renditions: int = 0
    of: str = ""
    """The field of boxes that this list belongs to: one element per box, removed together with its box."""

    @property
    def is_pixels(self) -> bool:
        return self.type in PIXEL_TYPES

    @property
    def is_tensor(self) -> bool:
        return is_tensor(self.type)

    @property
    def tensor(self) -> TensorType:
        """Dtype and shape of a field of tensors."""
        return TensorType.parse(self.type)

    @property
    def stored(self) -> str:
        """The kind of the column that holds a field without pixels."""
        return SHAPE_TYPES.get(self.type, self.type)

    @property
    def declared(self) -> str:
        """The type as `make_fields` reads it: `list<int64> of boxes`."""
        return f"{self.type} of {self.of}" if self.of else self.type

    def rendition_column(self, rendition: int, part: str) -> str:
        return f"{self.name}.{rendition}.{part}"


def make_fields(types: Mapping[str, str], renditions: Mapping[str, int] | None = None) -> tuple[Field, ...]:
    """Return the fields of a dataset; raise ValueError for a name or type that is not valid.

    A list that belongs to a field of boxes says so in its type: `list<int64> of boxes`.
    """
    renditions = renditions or {}
    if len(types) > MAX_FIELDS:
        raise ValueError(f"a dataset must have at most {MAX_FIELDS} fields; got {len(types)}")
    fields = []
    for name, declared in types.items():
        type_name, _, owner = declared.partition(" of ")
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"a field name must have 1 to 128 characters without dots or control characters, must not start with "
                f"'_' and must not be 'key'; got {name!r}"
            )
        check_type(name, type_name)
        count = renditions.get(name, 1) if type_name in PIXEL_TYPES else int(is_tensor(type_name))
        if type_name in PIXEL_TYPES and not 1 <= count <= MAX_RENDITIONS:
            raise ValueError(f"field {name!r} must have 1 to {MAX_RENDITIONS} renditions; got {count}")
        follows = type_name.startswith("list<") or type_name in SHAPE_TYPES
        if owner and (types.get(owner) != "boxes" or not follows):
            raise ValueError(f"field {name!r} must be a list, and {owner!r} a field of boxes; got {declared!r}")
        if type_name in SHAPE_TYPES and not owner:
            raise ValueError(f"field {name!r} must belong to boxes, as in '{type_name} of boxes'; got {declared!r}")
        fields.append(Field(name, type_name, count, owner))
    return tuple(fields)


def check_type(name: str, type_name: str) -> None:
    inner, depth = strip_lists(type_name)
    if inner in SCALAR_TYPES and depth <= MAX_LIST_DEPTH:
        return
    if depth == 0 and inner in (*PIXEL_TYPES, "boxes", *SHAPE_TYPES):
        return
    if is_tensor(type_name):
        try:
            TensorType.parse(type_name)
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from None
        return
    known = ", ".join((*PIXEL_TYPES, "boxes", *SHAPE_TYPES, *SCALAR_TYPES))
    raise ValueError(
        f"field {name!r} must have one of the types {known}, list<…> of the last four nested at most "
        f"{MAX_LIST_DEPTH} deep, or tensor<…>; got {type_name!r}"
    )


def strip_lists(type_name: str) -> tuple[str, int]:
    """Split `list<list<str>>` into `("str", 2)`."""
    depth = 0
    while type_name.startswith("list<") and type_name.endswith(">"):
        type_name = type_name[5:-1]
        depth += 1
    return type_name, depth


def columns(fields: tuple[Field, ...]) -> Iterator[tuple[str, str]]:
    """Yield the name and kind of each column in order. The kind is a field type or a `memoryview` format."""
    yield "key", "str"
    for field in fields:
        if field.is_pixels:
            for rendition in range(field.renditions):
                for part, letter in RENDITION_COLUMNS.items():
                    yield field.rendition_column(rendition, part), letter
            if field.type == "image":
                yield f"{field.name}.orientation", "B"
        elif field.is_tensor:
            for part in TENSOR_COLUMNS:
                yield field.rendition_column(0, part), RENDITION_COLUMNS[part]
        elif field.type == "boxes":
            yield field.name, "boxes"
            yield f"{field.name}.labels", "list<int64>"
        else:
            yield field.name, field.stored


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a column of this kind."""
    if kind in NUMBERS:
        return pa.from_numpy_dtype(NUMBERS[kind])
    if kind == "boxes":
        return pa.large_list(_item(pa.list_(_item(pa.float32()), 4)))
    if kind.startswith("list<"):
        return pa.large_list(_item(arrow_type(kind[5:-1])))
    return pa.large_string() if kind == "str" else pa.large_binary()


def arrow_schema(fields: tuple[Field, ...]) -> pa.Schema:
    """Return the schema of the index. No column is nullable."""
    return pa.schema([pa.field(name, arrow_type(kind), nullable=False) for name, kind in columns(fields)])


def _item(inner: pa.DataType) -> pa.Field:
    return pa.field("item", inner, nullable=False)
