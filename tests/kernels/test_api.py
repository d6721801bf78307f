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
from headrace.kernels import _backend, check_status, decode_batch, decode_prepared, failures, prepare_batch


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
        ({"regions": []}, "1 images but 0 regions"),
        ({"flips": [True, False]}, "1 images but 2 flips"),
        ({"dtype": "float64"}, "possible are uint8, uint16, int16, float16, float32"),
        ({"dtype": "uint8", "mean": 0.5, "std": 0.5}, "float16 or float32"),
        ({"mean": 0.5}, "come together"),
        ({"mean": [0.5, 0.5], "std": 1}, "2 channels"),
        ({"mean": 0, "std": 0}, "above 0"),
        ({"color": "BGR"}, "'keep' and 'RGB'"),
        ({"backend": "cuda"}, "possible are 'auto', 'triton', 'reference'"),
    ],
)
def test_what_makes_no_sense_is_refused(data, options, words):
    with pytest.raises(ValueError, match=words):
        decode_batch([data], device=DEVICE, **options)


def test_five_channels_have_no_rgb():
    data = headrace.encode(np.zeros((3, 3, 5), np.uint8))
    with pytest.raises(ValueError, match="image 0 has 5 channels"):
        decode_batch([data], device=DEVICE, color="RGB")


def test_dtypes_that_differ_need_a_choice(data):
    other = headrace.encode(np.zeros((3, 3), np.uint16))
    with pytest.raises(ValueError, match="say which dtype"):
        decode_batch([data, other], device=DEVICE)


def test_damage_is_found_before_anything_is_copied(data):
    """The checksum of a tile is the host's to check."""
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(CorruptImage, match=r"image 1: tile 0 at byte \d+: the checksum") as raised:
        prepare_batch([data, damaged])

    assert (raised.value.index, raised.value.tile) == (1, 0)


def test_two_steps_are_one(data, backend):
    """A loader lays a batch out in memory of its own, copies it when it likes and reads the status when it likes."""
    room = torch.zeros(1 << 16, dtype=torch.uint8)
    prepared = prepare_batch([data, data], dtype="float32", buffer=room)
    status = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    images = decode_prepared(prepared, prepared.staged.buffer.to(DEVICE), status=status, backend=backend)

    assert prepared.staged.buffer.data_ptr() == room.data_ptr()
    assert torch.equal(images, decode_batch([data, data], device=DEVICE, dtype="float32", backend=backend))
    check_status(status)
    assert failures(status.tolist()) == []


def test_triton_that_is_missing(data, monkeypatch):
    monkeypatch.setattr(_backend, "has_triton", lambda: False)
    with pytest.raises(MissingExtra, match=r"headrace\[gpu\]"):
        decode_batch([data], device=DEVICE, backend="triton")
    assert _backend.choose("auto", torch.device(DEVICE)) == "reference"


def test_triton_on_a_device_that_it_does_not_run_on(monkeypatch):
    monkeypatch.setattr(_backend, "has_triton", lambda: True)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        _backend.choose("triton", torch.device("meta"))
    assert _backend.choose("auto", torch.device("meta")) == "reference"


def test_names_are_public():
    assert all(hasattr(kernels, name) for name in kernels.__all__)
