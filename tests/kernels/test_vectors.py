# SPDX-License-Identifier: Apache-2.0
"""The spec's frozen vectors, decoded in batches of differently sized images: the oracle's pixels, or its errors."""

from __future__ import annotations

import hashlib
import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kernels.devices import DEVICE

from headrace.errors import CorruptImage, HeadraceError, UnsupportedImage
from headrace.kernels import decode_batch

VECTORS = Path(__file__).resolve().parents[2] / "spec" / "vectors"
MANIFEST = json.loads((VECTORS / "manifest.json").read_text())


def read(folder, name):
    return (VECTORS / folder / f"{name}.hri").read_bytes()


def many_channels(name):
    return len(MANIFEST["valid"][name]["shape"]) == 3 and MANIFEST["valid"][name]["shape"][2] > 8


BATCHES = {
    "unsigned": [n for n, e in MANIFEST["valid"].items() if e["dtype"] != "int16" and not many_channels(n)],
    "int16": [n for n, e in MANIFEST["valid"].items() if e["dtype"] == "int16"],
    "64 channels": [n for n in MANIFEST["valid"] if many_channels(n)],
}


@pytest.mark.parametrize("batch", BATCHES)
def test_valid_vectors_give_their_pixels(batch, backend):
    """Both depths in one batch: a level of uint8 comes out of uint16 as 257 times itself."""
    names, signed = BATCHES[batch], batch == "int16"
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


def test_every_vector_is_in_a_batch():
    assert sorted(chain(*BATCHES.values())) == sorted(MANIFEST["valid"])


def found_by_the_host(data):
    """What is wrong outside of tiles is found before anything is decoded, whatever decodes it."""
    try:
        decode_batch([data], device="cpu", backend="reference", status=torch.zeros(1, dtype=torch.int32))
    except HeadraceError as error:
        return error
    return None


def test_invalid_vectors_raise_their_errors(backend):
    """Those that the host accepts are decoded together; each has its own status."""
    left = []
    for name, expected in MANIFEST["invalid"].items():
        error = found_by_the_host(read("invalid", name))
        if error is None:
            left.append(name)
        else:
            assert type(error).__name__ == expected["error"], name
            assert error.index == 0
    status = torch.zeros(len(left), dtype=torch.int32, device=DEVICE)
    datas = [read("invalid", name) for name in left]
    decode_batch(datas, device=DEVICE, dtype="uint16", backend=backend, status=status)

    assert [name for name, code in zip(left, status.tolist(), strict=True) if not code] == []
    assert all(MANIFEST["invalid"][name]["error"] == "CorruptImage" for name in left)
    assert len(left) > 50, "most flaws are inside of tiles"


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
