# SPDX-License-Identifier: Apache-2.0
"""Files with volumes: written by the libraries that everyone uses, or byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid


def numbers(dtype: str, *shape: int) -> np.ndarray:
    """Numbers over the whole range of a dtype."""
    rng = np.random.default_rng(7)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def dicom(path: Path, array: np.ndarray, frames: int | None = None, **tags: Any) -> Path:
    """Write an uncompressed DICOM file; `tags` replace or add elements."""
    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = tags.pop("syntax", ExplicitVRLittleEndian)
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID = generate_uid()
    sides = array.shape[1:] if frames else array.shape
    ds.Rows, ds.Columns = sides[:2]
    ds.SamplesPerPixel = 1 if len(sides) == 2 else sides[2]
    ds.PhotometricInterpretation = "MONOCHROME2" if len(sides) == 2 else "RGB"
    if len(sides) > 2:
        ds.PlanarConfiguration = 0
    if frames:
        ds.NumberOfFrames = frames
    ds.BitsAllocated = ds.BitsStored = 8 * array.dtype.itemsize
    ds.HighBit = ds.BitsStored - 1
    ds.PixelRepresentation = int(array.dtype.kind == "i")
    ds.PixelData = array.tobytes()
    ds["PixelData"].VR = "OW" if array.dtype.itemsize > 1 else "OB"
    for name, value in tags.items():
        setattr(ds, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    ds.save_as(path, enforce_file_format=True)
    return path


def nifti_head(shape: tuple[int, ...], code: int, bits: int, offset: float = 352, **parts: Any) -> bytes:
    """A NIfTI-1 header with given contents."""
    head = bytearray(348)
    struct.pack_into("<i", head, 0, parts.get("size", 348))
    struct.pack_into("<8h", head, 40, parts.get("axes", len(shape)), *shape, *(1,) * (7 - len(shape)))
    struct.pack_into("<hh", head, 70, code, bits)
    struct.pack_into("<8f", head, 76, *(1,) * 8)
    struct.pack_into("<fff", head, 108, offset, parts.get("slope", 0), parts.get("intercept", 0))
    head[344:348] = parts.get("magic", b"n+1\0")
    return bytes(head) + bytes(4)
