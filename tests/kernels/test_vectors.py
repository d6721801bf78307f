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

import headrace
import headrace.errors
from headrace.errors import CorruptImage, HeadraceError
from headrace.kernels import decode_batch

VECTORS = Path(__file__).resolve().parents[2] / "spec" / "vectors"
MANIFEST = json.loads((VECTORS / "manifest.json").read_text())
BATCH = 48


def read(folder, name):
    return (VECTORS / folder / f"{name}.hri").read_bytes()


def batches():
    """The valid vectors by their dtype and, roughly, their channels: those of 64 would pad all others."""
    groups = {}
    for name, expected in MANIFEST["valid"].items():
        many = len(expected["shape"]) == 3 and expected["shape"][2] > 8
        groups.setdefault((expected["dtype"], many), []).append(name)
    for (dtype, _many), names in groups.items():
        for start in range(0, len(names), BATCH):
            yield pytest.param(names[start : start + BATCH], id=f"{dtype}-{names[start]}")


@pytest.mark.parametrize("names", list(batches()))
def test_valid_vectors_give_their_pixels(names, backend):
    images = decode_batch([read("valid", name) for name in names], device=DEVICE, backend=backend)
    for name, image in zip(names, images, strict=True):
        expected = MANIFEST["valid"][name]
        pixels = np.ascontiguousarray(np.moveaxis(image.cpu().numpy(), 0, 2)).reshape(expected["shape"])

        assert pixels.dtype.name == expected["dtype"]
        assert hashlib.sha256(pixels.tobytes()).hexdigest() == expected["pixels_sha256"], name


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
    decode_batch([read("invalid", name) for name in left], device=DEVICE, dtype="uint16", backend=backend, status=status)

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
    with pytest.raises(headrace.errors.UnsupportedImage, match="image 1"):
        unknown = next(name for name, entry in MANIFEST["invalid"].items() if entry["error"] == "UnsupportedImage")
        decode_batch([read("valid", "shape-1x1-fast"), read("invalid", unknown)], device=DEVICE)
