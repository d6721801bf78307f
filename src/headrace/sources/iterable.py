# SPDX-License-Identifier: Apache-2.0
"""Any Python iterable of dicts: a generator, a PyTorch dataset, a list.

It can only be iterated in one process: `items` takes a sample from the iterable and holds it, and `load` returns that
sample. So the builder loads samples in the parent process and sends them, not the items, to its workers:

    for item in source.items():
        sample = source.load(item)      # before the next item

An iterable that starts again each time (a list, an object with `__iter__`) can be listed again, as for a resumed build,
if it yields the same samples in the same order. A generator cannot, and raises BadSource.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from headrace import formats
from headrace.codec.images import as_image
from headrace.errors import BadSource, UnsupportedImage
from headrace.sources._types import Encoded, Item, encoded, field_name
from headrace.tensors import tensor_of

KEY = "__key__"
_PIXELS = ("uint8", "uint16", "int16")


class IterableSource:
    """Samples from an iterable of dicts. The first sample determines the fields, unless `fields` is given.

    An array of two or three dimensions, a Pillow image, and bytes that start like an image file are images, or masks if
    the field's name contains mask or seg. A pair of `[N, 4]` and `[N]`, or a dict of `boxes` and `labels`, are boxes.
    An array of another dtype, or of more dimensions, is a tensor: all samples must have its dtype and shape. One
    dimension is a list, unless `fields` says `tensor<float32,[768]>`. The key is `__key__` if there is one, or else the
    number of the sample, counted from `first`.
    """

    kind = "iterable"
    sequential = True
    classes = None

    def __init__(
        self, samples: Iterable[Mapping[str, object]], *, fields: Mapping[str, str] | None = None, first: int = 0
    ) -> None:
        self._samples, self._first_number = samples, first
        self._listings = 0
        self._first: Iterator[Mapping[str, object]] | None = None
        self._held: tuple[int, Mapping[str, object]] | None = None
        self.fields = dict(fields) if fields is not None else self._infer()

    def _infer(self) -> dict[str, str]:
        samples = iter(self._samples)
        sample = next(samples, None)
        if sample is None:
            raise BadSource("the iterable yields no samples")
        self._first = itertools.chain((sample,), samples)
        if not isinstance(sample, Mapping):
            raise BadSource(f"the samples of an iterable must be dicts; the first is {type(sample).__name__}")
        fields = {}
        for name, value in sample.items():
            if name == KEY:
                continue
            if not isinstance(name, str) or field_name(name) != name:
                raise BadSource(
                    f"a field name must have no dots and no leading underscore, and not be 'key'; got {name!r}"
                )
            fields[name] = _infer_type(name, value)
        return fields

    def items(self) -> Iterator[Item]:
        self._listings += 1
        if isinstance(self._samples, Iterator) and self._listings > 1:
            raise BadSource(
                "this iterable can be iterated once only; use a list, or an object whose __iter__ starts again"
            )
        samples, self._first = self._first or iter(self._samples), None
        for number, sample in enumerate(samples):
            if not isinstance(sample, Mapping):
                raise BadSource(f"sample {number} of the iterable must be a dict; got {type(sample).__name__}")
            key = sample.get(KEY, f"{self._first_number + number:09d}")
            if not isinstance(key, str) or not key:
                raise BadSource(f"the key of sample {number} must be a non-empty str; got {key!r}")
            self._held = (number, sample)
            n_bytes, checksum = _measure(sample)
            yield Item(key, n_bytes, (number,), checksum)
        self._held = None

    def load(self, item: Item) -> dict[str, object]:
        if self._held is None or self._held[0] != item.locator[0]:
            raise BadSource(
                "the samples of an iterable must be loaded in order: load each item before asking for the next"
            )
        sample = self._held[1]
        names = {name for name in sample if name != KEY}
        if names != self.fields.keys():
            raise BadSource(f"sample {item.key!r} must have the fields {sorted(self.fields)}; got {sorted(names)}")
        return {name: _value(sample[name], kind, f"{item.key}.{name}") for name, kind in self.fields.items()}

    def __reduce__(self) -> NoReturn:
        raise TypeError("an iterable source cannot be sent to another process; send the samples that it loads")


def _infer_type(name: str, value: object) -> str:  # noqa: PLR0911 - one return per type
    if _is_pixels(value):
        return "mask" if any(word in name.lower() for word in ("mask", "seg")) else "image"
    if _as_boxes(value) is not None:
        return "boxes"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(value, str):
        return "str"
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return "int64"
    if isinstance(value, (float, np.floating)):
        return "float32"
    if isinstance(value, (list, tuple, np.ndarray)) and len(value) and not np.ndim(value) > 1:
        element = _infer_type(name, value[0])
        if element in ("int64", "float32", "str"):
            return f"list<{element}>"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _infer_array(name, value)
    raise BadSource(
        f"the type of field {name!r} cannot be inferred from {type(value).__name__} (or an empty list) in the first "
        "sample; give the fields: IterableSource(samples, fields={...})"
    )


def _infer_array(name: str, value: Any) -> str:
    """Return the type for an array or tensor of two or more dimensions that is not an image as it is."""
    where, shape = f"field {name!r} of the first sample", tuple(value.shape)
    dtype = str(value.dtype).rpartition(".")[2]
    if dtype in (*_PIXELS, "bool") and len(shape) in (2, 3):
        _pixels(value, "image", where)
        return "image"
    try:
        kind = str(tensor_of(value)[0])
    except ValueError as error:
        raise BadSource(f"{where}: {error}") from error
    if dtype in ("float32", "float64") and len(shape) == 3 and (shape[2] in (1, 3, 4) or shape[0] in (1, 3, 4)):
        raise BadSource(
            f"{where} is {dtype} {list(shape)}, which may be an image: scale and round it to uint8 or uint16, or "
            f"store its numbers as they are with IterableSource(samples, fields={{{name!r}: {kind!r}, ...}})"
        )
    return kind


def _is_pixels(value: object) -> bool:
    if isinstance(value, Encoded) or (hasattr(value, "mode") and hasattr(value, "getbands")):
        return True
    if isinstance(value, np.ndarray):
        return value.ndim in (2, 3) and value.dtype.name in _PIXELS
    return isinstance(value, (bytes, bytearray, memoryview)) and formats.sniff(value) is not None


def _as_boxes(value: object) -> tuple[Any, Any] | None:
    if isinstance(value, Mapping) and value.keys() == {"boxes", "labels"}:
        return value["boxes"], value["labels"]
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, np.ndarray) for part in value):
        return value
    return None


def _value(value: Any, kind: str, where: str) -> object:
    """Return images and boxes in one form. `building` checks the types of all values when it stores them."""
    if kind in ("image", "mask"):
        return _pixels(value, kind, where)
    if kind == "boxes" and (value := _as_boxes(value)) is None:
        raise BadSource(f"{where} must be a pair of arrays [N, 4] and [N], or a dict of 'boxes' and 'labels'")
    return value


def _pixels(value: Any, kind: str, where: str) -> object:
    if isinstance(value, Encoded):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return encoded(bytes(value), where)
    if getattr(value, "mode", None) == "P" and kind == "image":
        value = value.convert("RGBA" if "transparency" in value.info else "RGB")
    mode = getattr(value, "mode", None)
    if isinstance(mode, str):
        value = np.asarray(value)
    if getattr(value, "dtype", None) == np.bool_:
        value = value * np.uint8(255 if kind == "image" else 1)
    try:
        array = as_image(value)
    except UnsupportedImage as error:
        raise BadSource(f"{where}: {error}") from error
    if not isinstance(mode, str):
        return array
    marked = array.view(_PillowArray)
    marked.mode = mode
    return marked


class _PillowArray(np.ndarray[Any, np.dtype[Any]]):
    """Pixels of a Pillow image with its mode, which says whether a fourth channel is alpha."""

    mode: str = ""


def _measure(sample: Mapping[str, object]) -> tuple[int, int]:
    """Return the size and a checksum of the images: 1 GB takes about a second, far less than encoding it."""
    n_bytes = checksum = 0
    for value in sample.values():
        data = value.data if isinstance(value, Encoded) else value
        if hasattr(data, "shape") and hasattr(data, "dtype") and not isinstance(data, (np.ndarray, np.generic)):
            try:
                data = tensor_of(data)[1]
            except (TypeError, ValueError):
                continue  # it is reported when it is stored
        if isinstance(data, np.ndarray):
            n_bytes += data.nbytes
            if data.dtype != object:
                checksum = zlib.crc32(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data, checksum)
        elif isinstance(data, (bytes, bytearray, memoryview)):
            n_bytes += len(data)
            checksum = zlib.crc32(data, checksum)
        elif hasattr(data, "getbands"):
            n_bytes += data.width * data.height * len(data.getbands())  # type: ignore[attr-defined]
    return n_bytes, checksum
