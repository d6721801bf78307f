# SPDX-License-Identifier: Apache-2.0
"""What comes out: dtypes, normalisation, channels, flips and strides, by the arithmetic of the CPU's transforms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.codec.pictures import Recipe
from tests.kernels.devices import DEVICE

import headrace
from headrace.errors import InvalidOutput
from headrace.kernels import decode_batch, stage_batch

LEVELS = {"uint8": 255, "uint16": 65535, "int16": 32768}
BITS = {"uint8": 8, "uint16": 16, "int16": 15}  # of the range that is not negative


def noise(dtype, channels=3, seed=0):
    return Recipe(5, 7, channels, dtype, "noise", seed).render()


def chw(image):
    return np.moveaxis(np.atleast_3d(image), 2, 0)


def scaled(image, dtype):
    """An integer of another depth."""
    own, new = BITS[image.dtype.name], BITS[dtype]
    if image.dtype.name == dtype:
        return image
    level = np.maximum(image.astype(np.int64), 0)
    if (own, new) == (8, 16):
        return (level * 257).astype(dtype)
    return (level >> own - new if own > new else level << new - own).astype(dtype)


def normalised(image, mean, std, dtype):
    """The product and the sum are rounded apart, in float32."""
    scale = np.float32(1 / (LEVELS[image.dtype.name] * np.asarray(std))).reshape(-1, 1, 1)
    shift = np.float32(-np.asarray(mean) / np.asarray(std)).reshape(-1, 1, 1)
    return (image.astype(np.float32) * scale + shift).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float16", "float32"])
def test_dtypes(dtype, backend):
    images = [noise(stored, seed=seed) for seed, stored in enumerate(LEVELS)]
    decoded = decode_batch([headrace.encode(image) for image in images], device=DEVICE, dtype=dtype, backend=backend)
    for found, image in zip(decoded, images, strict=True):
        expected = normalised(chw(image), [0], [1], dtype) if "float" in dtype else scaled(chw(image), dtype)

        assert found.cpu().numpy().dtype == dtype
        assert np.array_equal(found.cpu().numpy(), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_normalisation(dtype, backend):
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    images = [noise(stored) for stored in LEVELS]
    datas = [headrace.encode(image) for image in images]
    decoded = decode_batch(datas, device=DEVICE, dtype=dtype, mean=mean, std=std, backend=backend)
    for found, image in zip(decoded, images, strict=True):
        assert np.array_equal(found.cpu().numpy(), normalised(chw(image), mean, std, dtype))


def test_one_mean_serves_all_channels(backend):
    image = noise("uint8", 5)
    decoded = decode_batch([headrace.encode(image)], device=DEVICE, mean=0.5, std=0.25, backend=backend)

    assert decoded.dtype == torch.float32
    assert np.array_equal(decoded[0].cpu().numpy(), normalised(chw(image), [0.5], [0.25], "float32"))


def test_rgb_of_one_to_four_channels(backend):
    images = [noise("uint8", channels) for channels in (1, 2, 3, 4)]
    datas = [headrace.encode(image) for image in images]
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    decoded = decode_batch(datas, device=DEVICE, color="RGB", mean=mean, std=std, backend=backend)
    for found, image in zip(decoded, images, strict=True):
        planes = chw(image)[[0, 0, 0]] if chw(image).shape[0] < 3 else chw(image)[:3]

        assert np.array_equal(found.cpu().numpy(), normalised(planes, mean, std, "float32"))


def test_flips_mirror_columns(backend):
    image = noise("uint8")
    datas = [headrace.encode(image)] * 2
    plain, mirrored = decode_batch(datas, device=DEVICE, flips=[False, True], backend=backend)

    assert torch.equal(mirrored, plain.flip(2))


def test_out_of_any_strides(backend):
    """Channels last, with room around: what does not belong to the images is not touched."""
    datas = [headrace.encode(noise("uint8", seed=seed)) for seed in range(2)]
    memory = torch.full((2, 7, 9, 4), 99, dtype=torch.uint8, device=DEVICE)
    out = memory.permute(0, 3, 1, 2)[:, :3, 1:6, 2:]
    decoded = decode_batch(datas, device=DEVICE, out=out, backend=backend)

    assert decoded is out
    for found, data in zip(out, datas, strict=True):
        assert np.array_equal(found.cpu().numpy(), chw(headrace.decode(data)))
    out.fill_(99)
    assert (memory == 99).all()


def test_out_that_does_not_fit():
    data = headrace.encode(noise("uint8"))
    with pytest.raises(InvalidOutput, match=r"as \[N, C, H, W\]; got"):
        decode_batch([data], device=DEVICE, out=torch.zeros((1, 3, 5, 8), dtype=torch.uint8, device=DEVICE))
    with pytest.raises(InvalidOutput, match="uint8"):
        decode_batch([data], device=DEVICE, dtype="uint8", out=torch.zeros((1, 3, 5, 7), device=DEVICE))


def test_out_that_lies_too_far_apart():
    """Within a tile positions have 32 bits; nothing is written to where they would lead."""
    data = headrace.encode(noise("uint8"))
    far = torch.empty(1, dtype=torch.uint8, device="meta").expand(1).as_strided((1, 3, 5, 7), (0, 0, 2**27, 1))
    with pytest.raises(InvalidOutput, match=r"less than 2\^31 elements"):
        stage_batch([data], out=far)
