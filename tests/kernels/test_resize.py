# SPDX-License-Identifier: Apache-2.0
"""Bilinear resize with antialias: within a level of Pillow and of the CPU's transforms, all images in one launch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image
from tests.codec.pictures import Recipe
from tests.kernels import interpreter
from tests.kernels.devices import DEVICE, HAS_GPU

import headrace
from headrace.errors import InvalidOutput
from headrace.kernels import ResizeWindow, decode_batch, resize_batch

SIZES = [(37, 61), (20, 20), (90, 13), (5, 7)]


def picture(height, width, channels=3, dtype="uint8", seed=0):
    return Recipe(height, width, channels, dtype, "smooth", seed).render()


def tensor(image):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(np.atleast_3d(image), 2, 0))).to(DEVICE)


def pillow(image, height, width):
    return np.moveaxis(np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)), 2, 0)


def assert_within(found, expected, levels=1):
    assert np.abs(found.cpu().numpy().astype(np.int64) - expected.astype(np.int64)).max() <= levels


def test_pillow_agrees(backend):
    images = [picture(*size) for size in SIZES]
    resized = resize_batch(
        [tensor(image) for image in images], [ResizeWindow(size, (24, 28)) for size in SIZES], backend=backend
    )
    for found, image in zip(resized, images, strict=True):
        assert_within(found, pillow(image, 24, 28))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
def test_the_transforms_of_the_cpu_agree(dtype, backend, tmp_path):
    image = picture(41, 30, dtype=dtype)
    expected = cpu_resized(image, 17, 25, tmp_path)
    [found] = resize_batch([tensor(image)], [ResizeWindow((41, 30), (17, 25))], backend=backend)

    assert_within(found, expected)


def cpu_resized(image, height, width, folder):
    """What a loader makes of a dataset of one image."""
    with headrace.Writer(folder / "one.hr", fields={"image": "image"}, workers=1) as writer:
        writer.write({"image": image})
    resize = headrace.transforms.Resize((height, width))
    loader = headrace.Loader(folder / "one.hr", batch_size=1, shuffle=False, color="keep", transform=[resize])
    [batch] = loader
    return np.asarray(batch["image"])[0]


def test_equal_sizes_change_nothing(backend):
    image = picture(19, 23)
    [found] = resize_batch([tensor(image)], [ResizeWindow((19, 23), (19, 23))], backend=backend)

    assert torch.equal(found, tensor(image))


def test_a_window_of_what_was_decoded(backend):
    """Only the needed region is decoded, and only the window made of it, mirrored."""
    image = picture(60, 80)
    data = headrace.encode(image, mode="fast")
    whole = ResizeWindow((60, 80), (30, 36))
    window = ResizeWindow((60, 80), (30, 36), begin=(7, 9), count=(12, 20))
    region = window.needed_region()
    [decoded] = decode_batch([data], regions=[region], device=DEVICE, backend=backend)
    cut = dataclasses.replace(window, origin=region[:2])
    [found] = resize_batch([decoded], [cut], flips=[True], backend=backend)
    [expected] = resize_batch([tensor(image)], [whole], backend=backend)

    assert decoded.shape[1] < 60
    assert decoded.shape[2] < 80
    assert torch.equal(found.flip(2), expected[:, 7:19, 9:29])


def test_levels_are_rounded_before_they_are_normalised(backend):
    image = picture(30, 20)
    [levels] = resize_batch([tensor(image)], [ResizeWindow((30, 20), (8, 9))], backend=backend)
    [found] = resize_batch([tensor(image)], [ResizeWindow((30, 20), (8, 9))], mean=0.5, std=0.25, backend=backend)
    expected = levels.cpu().numpy().astype(np.float32) * np.float32(1 / (255 * 0.25)) + np.float32(-2)

    assert np.array_equal(found.cpu().numpy(), expected)


def test_one_launch_for_all(triton_backend):
    if HAS_GPU:
        pytest.skip("launches are counted in the interpreter")
    with interpreter.counted() as launched:
        resize_batch(
            [tensor(picture(*size)) for size in SIZES],
            [ResizeWindow(size, (24, 28)) for size in SIZES],
            backend=triton_backend,
        )

    assert launched == ["resize_kernel"]


def test_what_is_not_at_hand_is_refused():
    with pytest.raises(ValueError, match=r"needs rows 0 to 10"):
        resize_batch([tensor(picture(9, 10))], [ResizeWindow((10, 10), (5, 5))])
    with pytest.raises(ValueError, match="must be within the resized image"):
        ResizeWindow((10, 10), (5, 5), begin=(1, 0), count=(5, 5))
    with pytest.raises(InvalidOutput, match="out must be"):
        resize_batch(
            [tensor(picture(9, 10))], [ResizeWindow((9, 10), (5, 5))], out=torch.zeros((1, 3, 5, 6), device=DEVICE)
        )
