# SPDX-License-Identifier: Apache-2.0
"""The edges of the interface: what is refused, and with what words; what can be done in two steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.codec.pictures import Recipe
from tests.kernels.devices import DEVICE

import headrace
from headrace import kernels
from headrace.errors import CorruptImage, ImageTooLarge, InvalidRegion, MissingExtra
from headrace.kernels import backend, check_status, decode_batch, decode_staged, failures, stage_batch


@pytest.fixture(scope="module")
def data():
    return headrace.encode(Recipe(12, 20, 3, content="noise").render(), mode="fast")


def test_nothing_is_an_empty_list(backend):
    assert decode_batch([], device=DEVICE, backend=backend) == []


@pytest.mark.parametrize("region", [(0, 0, 13, 1), (-1, 0, 2, 2), (0, 0, 0, 5), (5, 15, 5, 6)])
def test_a_region_lies_within_its_image(data, region):
    with pytest.raises(InvalidRegion, match=r"image 1: region .* 12 rows and 20 columns") as raised:
        decode_batch([data, data], regions=[None, region], device=DEVICE)

    assert raised.value.index == 1


def test_too_many_pixels_are_refused(data):
    with pytest.raises(ImageTooLarge, match="240 pixels"):
        decode_batch([data], device=DEVICE, max_pixels=239)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regions": []}, "regions must have one entry.*got 0 for 1 images"),
        ({"flips": [True, False]}, "flips must have one entry per image; got 2 for 1"),
        ({"dtype": "float64"}, "must be one of uint8, uint16, int16, float16, float32"),
        ({"dtype": "uint8", "mean": 0.5, "std": 0.5}, "float16 or float32"),
        ({"mean": 0.5}, "both mean and std"),
        ({"mean": [0.5, 0.5], "std": 1}, "2 values"),
        ({"mean": 0, "std": 0}, "must be > 0"),
        ({"color": "BGR"}, "'keep' or 'RGB'"),
        ({"backend": "cuda"}, "must be one of 'auto', 'triton', 'reference'"),
    ],
)
def test_what_makes_no_sense_is_refused(data, options, words):
    with pytest.raises(ValueError, match=words):
        decode_batch([data], device=DEVICE, **options)


def test_five_channels_have_no_rgb():
    data = headrace.encode(np.zeros((3, 3, 5), np.uint8))
    with pytest.raises(ValueError, match="image 0 has 5: use"):
        decode_batch([data], device=DEVICE, color="RGB")


def test_dtypes_that_differ_need_a_choice(data):
    other = headrace.encode(np.zeros((3, 3), np.uint16))
    with pytest.raises(ValueError, match="pass dtype="):
        decode_batch([data, other], device=DEVICE)


def test_damage_is_found_before_anything_is_copied(data):
    """The checksum of a tile is the host's to check."""
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(CorruptImage, match=r"image 1: tile 0 at byte \d+: the checksum") as raised:
        stage_batch([data, damaged])

    assert (raised.value.index, raised.value.tile) == (1, 0)


def test_two_steps_are_one(data, backend):
    """A loader lays a batch out in memory of its own, copies it when it likes and reads the status when it likes."""
    room = torch.zeros(1 << 16, dtype=torch.uint8)
    staged = stage_batch([data, data], dtype="float32", buffer=room)
    status = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    images = decode_staged(staged, staged.buffer.to(DEVICE), status=status, backend=backend)

    assert staged.buffer.data_ptr() == room.data_ptr()
    assert torch.equal(images, decode_batch([data, data], device=DEVICE, dtype="float32", backend=backend))
    check_status(status)
    assert failures(status.tolist()) == []


def test_triton_that_is_missing(data, monkeypatch):
    monkeypatch.setattr(backend, "has_triton", lambda: False)
    with pytest.raises(MissingExtra, match=r"headrace\[gpu\]"):
        decode_batch([data], device=DEVICE, backend="triton")
    assert backend.choose("auto", torch.device(DEVICE)) == "reference"


def test_triton_on_a_device_that_it_does_not_run_on(monkeypatch):
    monkeypatch.setattr(backend, "has_triton", lambda: True)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        backend.choose("triton", torch.device("meta"))
    assert backend.choose("auto", torch.device("meta")) == "reference"


def test_names_are_public():
    assert all(hasattr(kernels, name) for name in kernels.__all__)
