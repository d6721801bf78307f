# SPDX-License-Identifier: Apache-2.0
"""NIfTI: `.nii` and `.nii.gz` files as slices along an axis, or as one image whose channels are the slices.

Numbers are those of the file. The scaling that its header announces is not applied: it is the field `rescale`, slope
and intercept. The field `affine` maps positions (i, j, k, 1) of the file to millimetres. An image is `[rows, columns]`
in the order of the two axes that remain; nothing is turned. A fourth axis becomes channels.

nibabel interprets the header. The numbers are read here, so that a compressed file is never unpacked beyond the size
that its header announces.
"""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt

from headrace.errors import BadSource
from headrace.formats import MAX_PIXELS
from headrace.sources._paths import require_file
from headrace.sources._types import require
from headrace.sources.scientific._volumes import Layout, VolumeRule, VolumeSource

SUFFIXES = (".nii", ".nii.gz")
_HEAD_BYTES = (348, 540)
_MAX_OFFSET = 1 << 26  # of the numbers: extensions lie before them
_CHUNK = 1 << 24


class NiftiSource(VolumeSource):
    """The volumes of a folder.

    Args:
        root: The folder, or one file.
        volume: `"slices"`: each slice is a sample; `"channels"`: each file is a sample, and its slices are channels.
        axis: The axis along which a volume is cut: 0, 1 or 2.
        max_pixels: Refuse slices with more pixels than this.

    """

    kind = "nifti"
    value_fields: ClassVar = {"rescale": "tensor<float64,[2]>", "affine": "tensor<float64,[4,4]>"}

    def __init__(
        self, root: str | Path, *, volume: VolumeRule = "slices", axis: int = 2, max_pixels: int = MAX_PIXELS
    ) -> None:
        if axis not in (0, 1, 2):
            raise BadSource(f"axis must be 0, 1 or 2; got {axis!r}")
        self._axis = axis
        super().__init__(root, volume=volume, max_pixels=max_pixels)

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, "axis": self._axis}

    def accepts(self, name: str) -> bool:
        return name.lower().endswith(SUFFIXES)

    def open(self, path: str, n_bytes: int) -> NiftiVolume:
        del n_bytes
        return NiftiVolume(path, self._axis)


class NiftiVolume:
    """An open file: its header is read, its numbers when they are first needed."""

    def __init__(self, path: str, axis: int) -> None:
        self._path, self._axis = path, axis
        self.is_compressed = path.lower().endswith(".gz")
        require_file(path)
        with _open(path) as stream:
            head = _read(stream, 4, "the header")
            sizes = int.from_bytes(head, "little"), int.from_bytes(head, "big")
            size = next((size for size in sizes if size in _HEAD_BYTES), 0)
            if not size:
                raise BadSource("this is not a NIfTI file: its header must have 348 or 540 bytes")
            head += _read(stream, size - 4, "the header")
        nibabel = require("nibabel", "medical", "NIfTI files")
        header = (nibabel.Nifti1Header if size == 348 else nibabel.Nifti2Header)(head, check=False)
        magic = bytes(header["magic"])[:3]
        if magic not in (b"n+1", b"n+2"):
            raise BadSource(f"a NIfTI file must contain header and numbers, with the magic n+1 or n+2; found {magic!r}")
        shape = [int(side) for side in header.get_data_shape()]
        while len(shape) > 3 and shape[-1] == 1:
            shape.pop()
        if not 2 <= len(shape) <= 4 or min(shape) < 1:
            raise BadSource(f"an array must have 2 to 4 axes of at least 1; its header announces {shape}")
        self._shape = (*shape, *(1,) * (4 - len(shape)))
        dtype = np.dtype(header.get_data_dtype())
        if dtype.names is not None:
            raise BadSource(f"numbers must be integers or floats; the file has {dtype.names} per voxel")
        self._dtype = dtype
        rest = [side for number, side in enumerate(self._shape[:3]) if number != axis]
        self.layout = Layout(self._shape[axis], rest[0], rest[1], self._shape[3], dtype.newbyteorder("="))
        self._offset = int(header.get_data_offset())
        self._n_bytes = math.prod(self._shape) * dtype.itemsize
        if not size <= self._offset <= _MAX_OFFSET:
            raise BadSource(f"the numbers must begin between bytes {size} and {_MAX_OFFSET}; got {self._offset}")
        slope, intercept = header.get_slope_inter()
        self._rescale = np.array([1.0 if slope is None else slope, 0.0 if intercept is None else intercept])
        self._affine = np.asarray(header.get_best_affine(), np.float64)
        self._numbers: npt.NDArray[Any] | None = None

    def read(self, which: int) -> npt.NDArray[Any]:
        if self._numbers is None:
            with _open(self._path) as stream:
                _skip(stream, self._offset)
                data = _read(stream, self._n_bytes, "its numbers")
            self._numbers = np.frombuffer(data, self._dtype).reshape(self._shape, order="F")
        numbers: npt.NDArray[Any] = self._numbers.take(which, axis=self._axis)
        return numbers

    def values(self, which: int) -> dict[str, object]:
        del which
        return {"rescale": self._rescale, "affine": self._affine}


def _open(path: str) -> IO[bytes]:
    return gzip.open(path, "rb") if path.lower().endswith(".gz") else Path(path).open("rb")  # type: ignore[return-value]


def _skip(stream: IO[bytes], n_bytes: int) -> None:
    while n_bytes:
        n_bytes -= len(_read(stream, min(n_bytes, _CHUNK), "its header"))


def _read(stream: IO[bytes], n_bytes: int, what: str) -> bytearray:
    """Read exactly so many bytes, in pieces: memory grows with what the file has, not with what it announces."""
    data = bytearray()
    while len(data) < n_bytes:
        piece = stream.read(min(_CHUNK, n_bytes - len(data)))
        if not piece:
            raise BadSource(f"the file ends within {what}: {n_bytes} bytes must follow, and {len(data)} do")
        data += piece
    return data
