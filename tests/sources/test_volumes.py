# SPDX-License-Identifier: Apache-2.0
"""DICOM, NIfTI and TIFF: every number and the geometry survive a build, and slices or channels are as chosen."""

from __future__ import annotations

import gzip
import sys

import nibabel
import numpy as np
import pytest
import tifffile
from tests.sources.volumes import dicom, nifti_head, numbers

import headrace
from headrace.errors import BadSource, BuildError, MissingExtra
from headrace.sources import DicomSource, NiftiSource, TiffSource, open_source


def built(source, tmp_path, **options):
    headrace.build(source, tmp_path / "out.hr", workers=1, **options)
    return headrace.open(tmp_path / "out.hr", color="keep")


# DICOM


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16"])
def test_dicom_frames_keep_every_number(tmp_path, dtype):
    """Frames are samples in order; slope, intercept and window are values and not applied."""
    frames = numbers(dtype, 3, 20, 30)
    tags = {"RescaleSlope": 0.5, "RescaleIntercept": -1024, "WindowCenter": [40, 400], "WindowWidth": [80, 2000]}
    dicom(tmp_path / "in/a.dcm", frames, 3, PixelSpacing=[0.7, 0.6], SeriesInstanceUID="1.2.3", **tags)
    ds = built(tmp_path / "in", tmp_path)

    assert [ds.key(row) for row in range(3)] == ["a.dcm/00000", "a.dcm/00001", "a.dcm/00002"]
    for row in range(3):
        np.testing.assert_array_equal(ds[row]["image"], frames[row])
        assert ds[row]["image"].dtype == dtype
    sample = ds[2]
    assert sample["rescale"].tolist() == [0.5, -1024]
    assert list(sample["window"]) == [40, 80, 400, 2000]
    assert sample["spacing"].tolist() == [0.7, 0.6]
    assert (sample["series"], sample["photometric"], sample["slice"]) == ("1.2.3", "MONOCHROME2", 2)


def test_dicom_frames_can_be_channels_and_colors_are_read(tmp_path):
    """With `volume="channels"` a file is one sample; RGB has three channels."""
    frames, color = numbers("uint16", 4, 9, 8), numbers("uint8", 9, 8, 3)
    dicom(tmp_path / "frames/a.dcm", frames, 4)
    dicom(tmp_path / "color/a.dcm", color)
    ds = built(DicomSource(tmp_path / "frames", volume="channels"), tmp_path)

    np.testing.assert_array_equal(ds[0]["image"], np.moveaxis(frames, 0, 2))
    np.testing.assert_array_equal(
        DicomSource(tmp_path / "color").load(next(DicomSource(tmp_path / "color").items()))["image"], color
    )


def test_dicom_files_without_a_suffix_are_recognized(tmp_path):
    """By their mark; other files without a suffix are ignored."""
    array = numbers("uint16", 5, 6)
    dicom(tmp_path / "in/IM0001", array)
    dicom(tmp_path / "in/1.2.840.1", array)
    (tmp_path / "in/README").write_text("not an image")
    source = DicomSource(tmp_path / "in")

    assert [item.key for item in source.items()] == ["1.2.840.1", "IM0001"]
    assert source.ignored.describe() == ["1 without suffix (such as README)"]


def test_dicom_is_rescaled_only_when_asked_and_only_exactly(tmp_path):
    """Hounsfield units are int16; a slope that gives fractions is an error."""
    stored = numbers("uint16", 6, 7) % 4096
    dicom(tmp_path / "ct/a.dcm", stored, RescaleSlope=1, RescaleIntercept=-1024)
    dicom(tmp_path / "pet/a.dcm", stored, RescaleSlope=0.37, RescaleIntercept=0)
    ds = built(DicomSource(tmp_path / "ct", rescale=True), tmp_path)

    np.testing.assert_array_equal(ds[0]["image"], stored.astype(np.int16) - 1024)
    with pytest.raises(BuildError, match=r"pet/a\.dcm.*whole numbers"):
        built(DicomSource(tmp_path / "pet", rescale=True), tmp_path / "pet.hr")


# NIfTI


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_nifti_slices_keep_every_number(tmp_path, suffix, axis):
    """Slices along each axis are those of the stored array; scaling and affine are values."""
    volume = numbers("int16", 5, 6, 7)
    affine = np.diag([0.5, 0.75, 3, 1]) + np.eye(4, k=3) * -80
    image = nibabel.Nifti1Image(volume, affine)
    (tmp_path / "in").mkdir()
    nibabel.save(image, tmp_path / f"in/scan{suffix}")
    ds = built(NiftiSource(tmp_path / "in", axis=axis), tmp_path)

    assert len(ds) == volume.shape[axis]
    for row in range(len(ds)):
        np.testing.assert_array_equal(ds[row]["image"], volume.take(row, axis=axis))
    np.testing.assert_array_equal(ds[0]["affine"], affine)
    assert ds[0]["rescale"].tolist() == [1, 0]


def test_another_axis_is_another_build(tmp_path):
    """A finished build along one axis is not taken for one along another, though keys and sizes are the same."""
    nibabel.save(nibabel.Nifti1Image(numbers("int16", 5, 5, 5), np.eye(4)), tmp_path / "a.nii")
    built(NiftiSource(tmp_path / "a.nii", axis=0), tmp_path)

    with pytest.raises(BuildError, match="axis"):
        built(NiftiSource(tmp_path / "a.nii", axis=1), tmp_path)


def test_nifti_scaling_is_not_applied(tmp_path):
    """The stored integers are kept, and slope and intercept beside them."""
    stored = numbers("int16", 4, 5, 2)
    (tmp_path / "a.nii").write_bytes(nifti_head(stored.shape, 4, 16, slope=0.5, intercept=3) + stored.tobytes("F"))
    ds = built(tmp_path / "a.nii", tmp_path)

    np.testing.assert_array_equal(ds[1]["image"], stored[:, :, 1])
    assert ds[1]["rescale"].tolist() == [0.5, 3]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_nifti_numbers_that_are_no_image_become_tensors(tmp_path, dtype):
    """Floats and wide integers keep every bit as tensors; the fourth axis is channels."""
    volume = numbers(dtype, 4, 5, 3, 2)
    nibabel.save(nibabel.Nifti2Image(volume, np.eye(4), dtype=dtype), tmp_path / "a.nii.gz")
    ds = built(tmp_path / "a.nii.gz", tmp_path)

    assert ds.fields["image"] == ("image" if dtype == "uint8" else f"tensor<{dtype},[4,5,2]>")
    for row in range(3):
        assert ds[row]["image"].tobytes() == np.ascontiguousarray(volume[:, :, row]).tobytes()


def test_nifti_volumes_can_be_channels(tmp_path):
    """A volume of at most 64 slices is one image; more is an error that says what to do."""
    volume = numbers("uint8", 8, 9, 10)
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), tmp_path / "a.nii")
    nibabel.save(nibabel.Nifti1Image(numbers("uint8", 8, 9, 65), np.eye(4)), tmp_path / "b.nii")
    ds = built(NiftiSource(tmp_path / "a.nii", volume="channels"), tmp_path)

    np.testing.assert_array_equal(ds[0]["image"], volume)
    with pytest.raises(BadSource, match="volume='slices'"):
        NiftiSource(tmp_path / "b.nii", volume="channels")


# TIFF


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("compression", [None, "zlib", "lzw"])
def test_tiff_bands_keep_every_number(tmp_path, dtype, planar, compression):
    """Thirteen bands of any dtype, interleaved or separate, tiled and compressed."""
    array = numbers(dtype, 32, 48, 13)
    stored = array if planar == "contig" else np.moveaxis(array, 2, 0)
    tifffile.imwrite(
        tmp_path / "a.tif",
        stored,
        planarconfig=planar,
        photometric="minisblack",
        compression=compression,
        tile=(16, 16),
    )
    ds = built(TiffSource(tmp_path / "a.tif"), tmp_path)

    assert ds.fields["image"] == ("image" if dtype != "float32" else "tensor<float32,[32,48,13]>")
    assert ds[0]["image"].tobytes() == array.tobytes()


def test_tiff_pages_are_slices_or_channels(tmp_path):
    """Pages are samples, or the channels of one; OME axes Z and T are slices, C is channels."""
    pages, ome = numbers("uint16", 3, 16, 20), numbers("uint16", 2, 4, 3, 16, 20)
    tifffile.imwrite(tmp_path / "pages.tif", pages, photometric="minisblack")
    tifffile.imwrite(tmp_path / "stack.ome.tif", ome, metadata={"axes": "TZCYX"}, photometric="minisblack")
    slices = built(TiffSource(tmp_path / "pages.tif"), tmp_path)
    channels = built(TiffSource(tmp_path / "pages.tif", volume="channels"), tmp_path / "channels")
    stack = built(tmp_path / "stack.ome.tif", tmp_path / "stack")

    np.testing.assert_array_equal([slices[row]["image"] for row in range(3)], pages)
    np.testing.assert_array_equal(channels[0]["image"], np.moveaxis(pages, 0, 2))
    for row in range(8):
        np.testing.assert_array_equal(stack[row]["image"], np.moveaxis(ome[row // 4, row % 4], 0, 2))


def test_geotiff_keeps_its_place(tmp_path):
    """Coordinates of pixels, coordinate system and the value for missing data."""
    keys = (1, 1, 0, 1, 3072, 0, 1, 32633)
    tags = [
        (33550, "d", 3, (10.0, 10.0, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 600000.0, 5400000.0, 0.0), True),
        (34735, "H", 8, keys, True),
        (42113, "s", 0, "-9999", True),
    ]
    tifffile.imwrite(tmp_path / "a.tif", numbers("int16", 12, 14), extratags=tags, photometric="minisblack")
    sample = built(TiffSource(tmp_path / "a.tif"), tmp_path)[0]

    assert sample["transform"].tolist() == [[10, 0, 600000], [0, -10, 5400000]]
    assert (sample["crs"], sample["nodata"]) == ("EPSG:32633", "-9999")


# All


def test_kinds_are_detected(tmp_path):
    """By suffix, if a folder contains nothing else; other TIFF files stay images."""
    dicom(tmp_path / "d/x/a.dcm", numbers("uint8", 4, 5))
    (tmp_path / "n").mkdir()
    nibabel.save(nibabel.Nifti1Image(numbers("uint8", 4, 5, 2), np.eye(4)), tmp_path / "n/a.nii.gz")
    (tmp_path / "t").mkdir()
    tifffile.imwrite(tmp_path / "t/a.tif", numbers("uint16", 4, 5))

    assert [open_source(tmp_path / name).kind for name in "dnt"] == ["dicom", "nifti", "folder"]
    assert open_source(tmp_path / "t", "tiff").kind == "tiff"


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [("dicom", "pydicom", "medical"), ("nifti", "nibabel", "medical"), ("tiff", "tifffile", "tiff")],
)
def test_a_missing_package_names_its_extra(tmp_path, monkeypatch, kind, module, extra):
    """The error says what to install."""
    dicom(tmp_path / "dicom/a.dcm", numbers("uint8", 4, 5))
    (tmp_path / "nifti").mkdir()
    nibabel.save(nibabel.Nifti1Image(numbers("uint8", 4, 5, 2), np.eye(4)), tmp_path / "nifti/a.nii")
    (tmp_path / "tiff").mkdir()
    tifffile.imwrite(tmp_path / "tiff/a.tif", numbers("uint16", 4, 5))
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtra, match=rf"headrace\[{extra}\]"):
        open_source(tmp_path / kind, kind)


def test_a_file_of_another_type_fails_its_sample(tmp_path):
    """The first file sets the type; a tensor of another shape is named."""
    for name, shape in (("a", (4, 5, 2)), ("b", (4, 6, 2))):
        path = tmp_path / f"in/{name}.nii"
        path.parent.mkdir(exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(numbers("float32", *shape), np.eye(4)), path)

    with pytest.raises(BuildError, match=r"b\.nii/00000.*tensor<float32,\[4,5\]>"):
        built(tmp_path / "in", tmp_path)


def test_a_truncated_gzip_file_is_an_error(tmp_path):
    """A compressed file that ends early fails its sample."""
    volume = numbers("uint8", 30, 30, 3)
    data = gzip.compress(nifti_head(volume.shape, 2, 8) + volume.tobytes("F"))
    (tmp_path / "a.nii.gz").write_bytes(data[: len(data) // 2])

    with pytest.raises(BuildError, match=r"a\.nii\.gz"):
        built(tmp_path / "a.nii.gz", tmp_path)
