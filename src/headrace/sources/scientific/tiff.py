# SPDX-License-Identifier: Apache-2.0
"""TIFF, OME-TIFF and GeoTIFF with any number of bands and pages; each page, or each file, is a sample.

The sources `folder` and `classes` read TIFF files of one page with all their bits and bands. This one also reads pages,
the axes of OME-TIFF, floating-point numbers, and where a GeoTIFF lies: `transform` maps (column, row, 1) to
coordinates, `crs` is its coordinate system and `nodata` the text that the file has for missing values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headrace.errors import BadSource
from headrace.formats import MAX_PIXELS
from headrace.sources._paths import require_file
from headrace.sources._types import require
from headrace.sources.scientific._volumes import Layout, VolumeRule, VolumeSource

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

SUFFIXES = (".tif", ".tiff")
OME_SUFFIXES = (".ome.tif", ".ome.tiff")
_CHANNEL_AXES = "SC"  # samples per pixel, and the channels of OME-TIFF
_SCALE, _TIEPOINT, _MATRIX, _KEYS, _NODATA = 33550, 33922, 34264, 34735, 42113
_PROJECTED, _GEOGRAPHIC = 3072, 2048
_MAX_PAGES = 65536


class TiffSource(VolumeSource):
    """The pages of the TIFF files of a folder.

    Args:
        root: The folder, or one file.
        volume: `"slices"`: each page (plane, time) is a sample; `"channels"`: each file is a sample, and its pages are
            channels.
        max_pixels: Refuse pages with more pixels than this.

    """

    kind = "tiff"
    value_fields: ClassVar = {"transform": "tensor<float64,[2,3]>", "crs": "str", "nodata": "str"}

    def __init__(self, root: str | Path, *, volume: VolumeRule = "slices", max_pixels: int = MAX_PIXELS) -> None:
        super().__init__(root, volume=volume, max_pixels=max_pixels)

    def accepts(self, name: str) -> bool:
        return name.lower().endswith(SUFFIXES)

    def open(self, path: str, n_bytes: int) -> TiffVolume:
        del n_bytes
        return TiffVolume(path)


class TiffVolume:
    """A file: its directories are read, its pixels when they are first needed."""

    def __init__(self, path: str) -> None:
        tifffile = require("tifffile", "tiff", "TIFF files")
        require_file(path)
        self._path = path
        self._numbers: npt.NDArray[Any] | None = None
        # Not multifile: the files that an OME header names are not read.
        with tifffile.TiffFile(path, _multifile=False) as file:
            if len(file.pages) > _MAX_PAGES:
                raise BadSource(f"a file must have at most {_MAX_PAGES} pages; it has {len(file.pages)}")
            if not file.series:
                raise BadSource("the file has no image")
            series, tags = file.series[0], file.pages[0].tags
            self.is_compressed = any(page.compression != 1 for page in _listed(file.pages))
            self._axes, self._shape = series.axes, tuple(int(side) for side in series.shape)
            dtype = series.dtype
            self._values = {
                "transform": _transform(tags),
                "crs": _crs(tags),
                "nodata": str(_tag(tags, _NODATA) or "").strip("\0 "),
            }
        if dtype is None or self._axes.count("Y") != 1 or self._axes.count("X") != 1:
            raise BadSource(f"an image must have one axis Y and one axis X; the file has {self._axes!r} {self._shape}")
        side = dict(zip(self._axes, self._shape, strict=True))
        channels = math.prod(side[axis] for axis in self._axes if axis in _CHANNEL_AXES)
        slices = math.prod(side[axis] for axis in self._axes if axis not in ("Y", "X", *_CHANNEL_AXES))
        self.layout = Layout(slices, side["Y"], side["X"], channels, np.dtype(dtype).newbyteorder("="))

    def read(self, which: int) -> npt.NDArray[Any]:
        if self._numbers is None:
            self._numbers = self._read()
        one: npt.NDArray[Any] = self._numbers[which]
        return one

    def _read(self) -> Any:
        tifffile = require("tifffile", "tiff", "TIFF files")
        with tifffile.TiffFile(self._path, _multifile=False) as file:
            array = file.series[0].asarray(maxworkers=1)
        if array.shape != self._shape:
            raise BadSource(f"its pixels are {list(array.shape)}, and its header announces {list(self._shape)}")
        slices = [at for at, axis in enumerate(self._axes) if axis not in ("Y", "X", *_CHANNEL_AXES)]
        channels = [at for at, axis in enumerate(self._axes) if axis in _CHANNEL_AXES]
        array = array.transpose(*slices, self._axes.index("Y"), self._axes.index("X"), *channels)
        return array.reshape(self.layout[:4])

    def values(self, which: int) -> dict[str, object]:
        del which
        return dict(self._values)


def _listed(pages: Any) -> list[Any]:
    """Return the first and the last page; the others have the compression of one of them."""
    return [pages[0], pages[len(pages) - 1]]


def _tag(tags: Any, code: int) -> Any:
    found = tags.get(code)
    return None if found is None else found.value


def _transform(tags: Any) -> npt.NDArray[np.float64]:
    """Return the map from (column, row, 1) of a pixel's corner to coordinates; NaN if the file has none."""
    matrix = _tag(tags, _MATRIX)
    if matrix is not None and len(matrix) >= 8:
        return np.array([[matrix[0], matrix[1], matrix[3]], [matrix[4], matrix[5], matrix[7]]], np.float64)
    scale, tie = _tag(tags, _SCALE), _tag(tags, _TIEPOINT)
    if scale is None or tie is None or len(scale) < 2 or len(tie) < 6:
        return np.full((2, 3), np.nan)
    return np.array([[scale[0], 0, tie[3] - tie[0] * scale[0]], [0, -scale[1], tie[4] + tie[1] * scale[1]]], np.float64)


def _crs(tags: Any) -> str:
    """Return the coordinate system as in `EPSG:32633`; empty if the file names none."""
    keys = list(_tag(tags, _KEYS) or ())
    codes = {keys[at]: keys[at + 3] for at in range(4, len(keys) - 3, 4) if keys[at + 1] == 0}
    code = codes.get(_PROJECTED) or codes.get(_GEOGRAPHIC)
    return f"EPSG:{code}" if code else ""
