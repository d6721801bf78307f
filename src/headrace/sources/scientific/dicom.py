# SPDX-License-Identifier: Apache-2.0
"""DICOM: each frame of each file is a sample.

Numbers are those of the file. Rescaling and windowing are not applied: slope and intercept are the field `rescale`, the
centers and widths of the windows are `window`. With `rescale=True`, CT numbers become Hounsfield units, if these are
whole numbers that int16 holds. Colors stored as YCbCr become RGB, as pydicom decodes them. Names and other data of the
patient are not read.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headrace.errors import BadSource, HeadraceError
from headrace.formats import MAX_PIXELS
from headrace.sources._paths import join, read_range, require_file
from headrace.sources._types import require
from headrace.sources.scientific._volumes import Layout, VolumeRule, VolumeSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from headrace.sources._paths import Found

SUFFIXES = (".dcm", ".dicom", ".ima")
_MAGIC, _MAGIC_OFFSET = b"DICM", 128
_DEFLATED = "1.2.840.10008.1.2.1.99"
_MAX_FRAMES = 1 << 20
_TAGS = {
    "Rows",
    "Columns",
    "NumberOfFrames",
    "SamplesPerPixel",
    "BitsAllocated",
    "PixelRepresentation",
    "PhotometricInterpretation",
    "RescaleSlope",
    "RescaleIntercept",
    "WindowCenter",
    "WindowWidth",
    "PixelSpacing",
    "SeriesInstanceUID",
    "InstanceNumber",
    "FloatPixelData",
    "DoubleFloatPixelData",
}


class DicomSource(VolumeSource):
    """The frames of the DICOM files of a folder. Files without a suffix belong to it if they have the mark `DICM`.

    Args:
        root: The folder, or one file.
        volume: `"slices"`: each frame is a sample; `"channels"`: each file is a sample, and its frames are channels.
        rescale: Apply slope and intercept. The results must be whole numbers within int16.
        max_pixels: Refuse frames with more pixels than this.

    """

    kind = "dicom"
    value_fields: ClassVar = {
        "rescale": "tensor<float64,[2]>",
        "window": "list<float32>",
        "spacing": "tensor<float64,[2]>",
        "photometric": "str",
        "series": "str",
        "instance": "int64",
    }

    def __init__(
        self,
        root: str | Path,
        *,
        volume: VolumeRule = "slices",
        rescale: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self._rescale = bool(rescale)
        super().__init__(root, volume=volume, max_pixels=max_pixels)

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, "rescale": self._rescale}

    def accepts(self, name: str) -> bool:
        return name.lower().endswith(SUFFIXES) or not any(map(str.isalpha, os.path.splitext(name)[1]))  # noqa: PTH122

    def files(self) -> Iterator[Found]:
        for found in super().files():
            if (
                found.path.lower().endswith(SUFFIXES)
                or found.problem is not None
                or is_dicom(join(self.root, found.path))
            ):
                yield found
            else:
                self.ignored.add(found.path)

    def open(self, path: str, n_bytes: int) -> DicomFile:
        del n_bytes
        return DicomFile(path, self._rescale)


class DicomFile:
    """An open file: its header is read; a frame is decoded when it is needed."""

    def __init__(self, path: str, rescale: bool) -> None:
        pydicom = require("pydicom", "medical", "DICOM files")
        require_file(path)
        self._path, self._rescales = path, rescale
        meta = pydicom.filereader.read_file_meta_info(path)
        syntax = meta.get("TransferSyntaxUID")
        self.is_compressed = bool(syntax is not None and syntax.is_compressed)
        if syntax == _DEFLATED:
            raise BadSource("deflated DICOM files are not supported: convert it to an uncompressed transfer syntax")
        header = self._header = pydicom.dcmread(path, stop_before_pixels=True, specific_tags=sorted(_TAGS))
        sides = [_whole(header, name, default) for name, default in (("Rows", 0), ("Columns", 0))]
        frames = _whole(header, "NumberOfFrames", 1) or 1
        if frames > _MAX_FRAMES:
            raise BadSource(f"a file must have at most {_MAX_FRAMES} frames; its header announces {frames}")
        self.slope, self.intercept = _real(header, "RescaleSlope", 1.0), _real(header, "RescaleIntercept", 0.0)
        dtype = np.dtype(np.int16) if rescale else self._dtype()
        self.layout = Layout(frames, sides[0], sides[1], _whole(header, "SamplesPerPixel", 1), dtype)

    def _dtype(self) -> np.dtype[Any]:
        bits, is_signed = _whole(self._header, "BitsAllocated", 16), _whole(self._header, "PixelRepresentation", 0)
        if bits not in (1, 8, 16, 32, 64) or is_signed not in (0, 1):
            raise BadSource(f"BitsAllocated must be 1, 8, 16, 32 or 64; its header announces {bits}")
        if bits == 64 or (bits == 32 and "FloatPixelData" in self._header):
            return np.dtype(f"f{bits // 8}")
        return np.dtype(f"{'i' if is_signed and bits > 1 else 'u'}{max(bits, 8) // 8}")

    def read(self, which: int) -> npt.NDArray[Any]:
        decoders = require("pydicom.pixels", "medical", "DICOM files")
        pixels = np.asarray(decoders.pixel_array(self._path, index=which))
        layout = self.layout
        pixels = pixels.reshape(*pixels.shape[:2], -1)
        if pixels.shape != (layout.height, layout.width, layout.channels):
            raise BadSource(f"its pixels are {list(pixels.shape)}, and its header announces {list(layout[1:4])}")
        if self._rescales:
            return _rescaled(pixels, self.slope, self.intercept)
        if pixels.dtype != layout.dtype:
            raise BadSource(f"its pixels are {pixels.dtype}, and its header announces {layout.dtype}")
        return pixels

    def values(self, which: int) -> dict[str, object]:
        del which
        header = self._header
        windows = zip(_reals(header, "WindowCenter"), _reals(header, "WindowWidth"), strict=False)
        spacing = [*_reals(header, "PixelSpacing"), math.nan, math.nan][:2]
        return {
            "rescale": np.array([self.slope, self.intercept]),
            "window": [number for window in windows for number in window],
            "spacing": np.array(spacing, np.float64),
            "photometric": str(header.get("PhotometricInterpretation") or ""),
            "series": str(header.get("SeriesInstanceUID") or ""),
            "instance": _whole(header, "InstanceNumber", 0),
        }


def is_dicom(path: str) -> bool:
    """Return whether a file has the mark of DICOM."""
    try:
        return read_range(path, _MAGIC_OFFSET, 4) == _MAGIC and os.path.basename(path).upper() != "DICOMDIR"  # noqa: PTH119
    except HeadraceError:
        return False


def _rescaled(pixels: npt.NDArray[Any], slope: float, intercept: float) -> npt.NDArray[np.int16]:
    exact = pixels.astype(np.float64) * slope + intercept
    whole = exact.astype(np.int16, casting="unsafe") if np.isfinite(exact).all() else np.zeros(exact.shape, np.int16)
    if not np.array_equal(whole, exact):
        raise BadSource(
            f"slope {slope:g} and intercept {intercept:g} do not give whole numbers within int16: use rescale=False "
            "and apply them in training"
        )
    return whole


def _whole(header: Any, name: str, default: int) -> int:
    value = header.get(name)
    return default if value is None or value == "" else int(value)


def _real(header: Any, name: str, default: float) -> float:
    value = header.get(name)
    return default if value is None or value == "" else float(value)


def _reals(header: Any, name: str) -> list[float]:
    value = header.get(name)
    if value is None or value == "":
        return []
    return [float(number) for number in (value if hasattr(value, "__iter__") else [value])]
