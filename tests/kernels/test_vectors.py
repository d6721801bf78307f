# SPDX-License-Identifier: Apache-2.0
"""The spec's frozen vectors, decoded in batches of differently sized images: the oracle's pixels, or its errors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kernels.devices import DEVICE

from headrace.errors import CorruptImage, HeadraceError, UnsupportedImage
from headrace.kernels import decode_batch, stage_batch

VECTORS = Path(__file__).resolve().parents[2] / "spec" / "vectors"
MANIFEST = json.loads((VECTORS / "manifest.json").read_text())


def read(folder, name):
    return (VECTORS / folder / f"{name}.hri").read_bytes()


def batch_of(name):
    """What is padded to one width goes together, and so does what comes out in one dtype."""
    entry = MANIFEST["valid"][name]
    if entry["dtype"] == "int16":
        return "int16"
    if len(entry["shape"]) == 3 and entry["shape"][2] > 8:
        return "64 channels"
    return "narrow" if entry["shape"][1] <= 40 else "wide"


BATCHES: dict[str, list[str]] = {}
for vector in MANIFEST["valid"]:
    BATCHES.setdefault(batch_of(vector), []).append(vector)


def some(names):
    """The first of each family and every fortieth: the interpreter takes its time, and `-m slow` takes them all."""
    first_of = {name.split("-")[0]: name for name in reversed(names)}
    return sorted({*first_of.values(), *names[::40]})


def assert_pixels(names, backend):
    """Both depths in one batch: a level of uint8 comes out of uint16 as 257 times itself."""
    signed = MANIFEST["valid"][names[0]]["dtype"] == "int16"
    datas = [read("valid", name) for name in names]
    images = decode_batch(datas, device=DEVICE, dtype="int16" if signed else "uint16", backend=backend)
    for name, image in zip(names, images, strict=True):
        expected = MANIFEST["valid"][name]
        pixels = np.moveaxis(image.cpu().numpy(), 0, 2)
        if expected["dtype"] == "uint8":
            assert (pixels % 257 == 0).all()
            pixels = (pixels // 257).astype(np.uint8)
        assert list(pixels.shape[: len(expected["shape"])]) == expected["shape"]
        assert hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest() == expected["pixels_sha256"], name


@pytest.mark.parametrize("batch", BATCHES)
def test_valid_vectors_give_their_pixels(batch):
    assert_pixels(BATCHES[batch], "reference")


@pytest.mark.parametrize("batch", ["narrow", "wide", "int16"])
def test_the_kernels_give_the_pixels_of_some_vectors(batch, triton_backend):
    assert_pixels(some(BATCHES[batch]), triton_backend)


@pytest.mark.slow
@pytest.mark.parametrize("batch", BATCHES)
def test_the_kernels_give_the_pixels_of_every_vector(batch, triton_backend):
    assert_pixels(BATCHES[batch], triton_backend)


def found_by_the_host(data):
    """What is wrong outside of tiles is found before anything is decoded, whatever decodes it."""
    try:
        stage_batch([data])
    except HeadraceError as error:
        return error
    return None


def flawed_inside():
    """The invalid vectors that the host accepts; what it does not accept has the right error."""
    left = []
    for name, expected in MANIFEST["invalid"].items():
        error = found_by_the_host(read("invalid", name))
        if error is None:
            left.append(name)
        else:
            assert type(error).__name__ == expected["error"], name
            assert error.index == 0
    return left


def assert_found(names, backend):
    """Decoded together, each flawed image has a status of its own."""
    status = torch.zeros(len(names), dtype=torch.int32, device=DEVICE)
    datas = [read("invalid", name) for name in names]
    decode_batch(datas, device=DEVICE, dtype="uint16", backend=backend, status=status)

    assert [name for name, code in zip(names, status.tolist(), strict=True) if not code] == []
    assert all(MANIFEST["invalid"][name]["error"] == "CorruptImage" for name in names)


def test_invalid_vectors_raise_their_errors():
    left = flawed_inside()

    assert_found(left, "reference")
    assert len(left) > 50, "most flaws are inside of tiles"


def test_the_kernels_find_the_flaws_of_some_vectors(triton_backend):
    assert_found(some(flawed_inside()), triton_backend)


@pytest.mark.slow
def test_the_kernels_find_the_flaws_of_every_vector(triton_backend):
    assert_found(flawed_inside(), triton_backend)


def test_a_damaged_image_is_named(backend):
    good, bad = read("valid", "shape-31x33-fast"), read("invalid", "width-over-8")
    with pytest.raises(CorruptImage, match="image 1: tile 0") as raised:
        decode_batch([good, bad, good], device=DEVICE, dtype="uint8", backend=backend)

    assert raised.value.index == 1
    assert raised.value.tile == 0


def test_headers_are_the_business_of_the_codec():
    unknown = next(name for name, entry in MANIFEST["invalid"].items() if entry["error"] == "UnsupportedImage")
    with pytest.raises(UnsupportedImage, match="image 1"):
        decode_batch([read("valid", "shape-1x1-fast"), read("invalid", unknown)], device=DEVICE)
