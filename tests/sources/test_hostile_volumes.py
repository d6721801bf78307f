# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile DICOM, NIfTI and TIFF files raise errors with their names, and take no memory for claims."""

from __future__ import annotations

import gzip
import re
import struct
import tracemalloc
import warnings

import numpy as np
import pytest
import tifffile
from pydicom.uid import DeflatedExplicitVRLittleEndian
from tests.sources.volumes import dicom, nifti_head, numbers

from headrace.errors import BadSource
from headrace.sources import DicomSource, NiftiSource, TiffSource

MAX_MEMORY = 100 << 20
SOURCES = {"dicom": DicomSource, "nifti": NiftiSource, "tiff": TiffSource}


@pytest.fixture(autouse=True)
def _little_memory():
    """No test allocates more than a few megabytes, whatever a header says; parsers may warn."""
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MAX_MEMORY


def specimen(kind, path):
    """A small valid file."""
    if kind == "dicom":
        dicom(path, numbers("uint16", 2, 12, 10), 2, WindowCenter=[1, 2], WindowWidth=[3, 4], RescaleSlope=2)
    elif kind == "nifti":
        path.write_bytes(nifti_head((6, 7, 3), 4, 16, slope=2) + numbers("int16", 6, 7, 3).tobytes("F"))
    else:
        tifffile.imwrite(path, numbers("uint16", 2, 16, 16, 3), photometric="rgb", compression="zlib", tile=(16, 16))
    return path


def read_all(source):
    """Load every sample; return the messages of those that could not be loaded, None for the others."""

    def problem(item):
        try:
            source.load(item)
        except BadSource as error:
            return str(error)
        return None

    return [problem(item) for item in source.items()]


def messages(make):
    """Read a file entirely; return the messages."""
    try:
        return read_all(make())
    except BadSource as error:
        return [str(error)]


@pytest.mark.parametrize("kind", SOURCES)
def test_mutated_files_raise_or_load(tmp_path, kind):
    """Flipped bytes and cuts anywhere give a sample or BadSource that names the file, and nothing else."""
    path = specimen(kind, tmp_path / f"a.{ {'dicom': 'dcm', 'nifti': 'nii', 'tiff': 'tif'}[kind] }")
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(1)
    refused = 0
    for turn in range(60):
        data = bytearray(whole)
        if turn % 3 == 0:
            del data[int(rng.integers(len(data))) :]
        # Headers are small: most changes go there.
        for at in rng.integers(0, min(len(data), 700) if turn % 2 else len(data), 4) if data else ():
            data[at] = int(rng.choice([0, 1, 0x7F, 0xFF, int(rng.integers(256))]))
        path.write_bytes(data)
        found = [message for message in messages(lambda: SOURCES[kind](path)) if message is not None]
        refused += bool(found)
        assert all(path.name in message for message in found)
    assert refused > 10


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"shape": (32767, 32767, 4), "code": 64, "bits": 64}, "at most"),
        ({"shape": (32767, 9999, 2), "code": 2, "bits": 8, "gz": True}, "more than a file"),
        ({"shape": (5, 5, 5), "offset": 2e9}, "must begin between"),
        ({"shape": (5, 5, 5), "offset": float("nan")}, "nifti|begin"),
        ({"shape": (5, -5, 5)}, "at least 1"),
        ({"shape": (5, 0, 5)}, "at least 1"),
        ({"shape": (5, 5), "axes": 200}, "nifti|axes"),
        ({"shape": (5, 5, 5), "magic": b"ni1\0"}, "magic"),
        ({"shape": (5, 5, 5), "code": 128, "bits": 24}, "per voxel"),
        ({"shape": (5, 5, 5), "code": 32, "bits": 64}, "complex64"),
        ({"shape": (5, 5, 5), "code": 9999}, "nifti"),
        ({"shape": (5, 5, 5), "size": 12}, "348 or 540"),
    ],
)
def test_false_nifti_headers_are_refused(tmp_path, parts, message):
    """Sizes are compared with the file before any memory is allocated for them."""
    shape, compress = parts.pop("shape"), parts.pop("gz", False)
    head = nifti_head(shape, parts.pop("code", 2), parts.pop("bits", 8), **parts)
    path = tmp_path / ("a.nii.gz" if compress else "a.nii")
    path.write_bytes(gzip.compress(head) if compress else head + bytes(125))

    with pytest.raises(BadSource, match=message):
        NiftiSource(path)


def test_a_gzip_bomb_is_read_only_as_far_as_announced(tmp_path):
    """What follows the numbers is never unpacked."""
    head = nifti_head((5, 5, 2), 2, 8) + bytes(50)
    with gzip.open(tmp_path / "a.nii.gz", "wb", 1) as stream:
        stream.write(head)
        for _ in range(200):
            stream.write(bytes(1 << 20))

    assert read_all(NiftiSource(tmp_path / "a.nii.gz")) == [None, None]


def test_max_pixels_is_checked_before_decoding(tmp_path):
    """For every kind."""
    for kind, name in (("dicom", "a.dcm"), ("nifti", "a.nii"), ("tiff", "a.tif")):
        path = specimen(kind, tmp_path / name)
        with pytest.raises(BadSource, match=rf"{name}.*at most 30 pixels"):
            SOURCES[kind](path, max_pixels=30)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"Rows": 65535, "Columns": 65535}, "at most"),
        ({"Rows": 0}, "at least 1"),
        ({"NumberOfFrames": 2**31 - 1}, "frames"),
        ({"Rows": 8000, "Columns": 8000, "NumberOfFrames": 4}, "a.dcm"),
        ({"SamplesPerPixel": 3}, "a.dcm"),
        ({"BitsAllocated": 12}, "BitsAllocated|a.dcm"),
        ({"syntax": DeflatedExplicitVRLittleEndian}, "deflated"),
    ],
)
def test_false_dicom_headers_are_refused(tmp_path, tags, message):
    """Sizes that the pixels do not have, unknown bits, and compressed headers."""
    path = dicom(tmp_path / "a.dcm", numbers("uint16", 12, 10), **tags)

    [found, *_] = messages(lambda: DicomSource(path))
    assert re.search(message, found)


def test_a_tiff_file_that_announces_terabytes_is_refused(tmp_path):
    """Width, height and samples of a directory are only claims."""
    entries = [(256, 4, 4_000_000_000), (257, 4, 4_000_000_000), (258, 3, 16), (259, 3, 1), (262, 3, 1), (277, 3, 1)]
    entries += [(273, 4, 8), (278, 4, 4_000_000_000), (279, 4, 100)]
    data = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(entries))
    data += b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in sorted(entries)) + bytes(200)
    (tmp_path / "a.tif").write_bytes(data)

    with pytest.raises(BadSource, match=r"a\.tif"):
        TiffSource(tmp_path / "a.tif")


def test_a_tiff_directory_that_refers_to_itself_ends(tmp_path):
    """A loop of pages does not hang."""
    path = specimen("tiff", tmp_path / "a.tif")
    data = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    struct.pack_into("<I", data, first + 2 + 12 * count, first)
    path.write_bytes(data)

    assert len(messages(lambda: TiffSource(path))) < 4
