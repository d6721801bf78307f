# SPDX-License-Identifier: Apache-2.0
"""Batches of images of all shapes, depths, channels and modes, whole and in part: the CPU's pixels, bit for bit."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from tests.codec.pictures import CONTENTS, SIDES, Recipe
from tests.kernels import devices
from tests.kernels.devices import DEVICE

import headrace
from headrace.kernels import backend, decode_batch

MODES = ("fast", "dense")


def expected_of(data, region=None, *, flip=False):
    """What the CPU decodes, [C, H, W]."""
    image = np.moveaxis(np.atleast_3d(headrace.decode(data, region=region)), 2, 0)
    return image[:, :, ::-1] if flip else image


def assert_same(images, datas, regions=None, flips=None):
    for i, (image, data) in enumerate(zip(images, datas, strict=True)):
        flip = flips is not None and flips[i]
        expected = expected_of(data, None if regions is None else regions[i], flip=flip)

        assert np.array_equal(image.cpu().numpy(), expected), f"image {i}, {expected.shape}"


def random_region(rng, height, width):
    h, w = int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1))
    return int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1)), h, w


def random_batch(seed, dtype, count, pixels=2000):
    """Encoded pictures of odd sizes and any content, with regions and flips."""
    rng = np.random.default_rng(seed)
    datas, regions, flips = [], [], []
    for i in range(count):
        height = int(rng.choice(SIDES))
        width = min(int(rng.choice(SIDES)), max(1, pixels // height))
        channels = int(rng.choice([1, 2, 3, 3, 4, 5]))
        recipe = Recipe(height, width, channels, dtype, str(rng.choice(sorted(CONTENTS))), int(rng.integers(0, 9999)))
        datas.append(headrace.encode(recipe.render(), mode=MODES[i % 2]))
        regions.append(random_region(rng, height, width) if rng.random() < 0.5 else None)
        flips.append(bool(rng.integers(0, 2)))
    return datas, regions, flips


@pytest.mark.parametrize(("seed", "dtype"), [(1, "uint8"), (2, "uint16"), (3, "int16")])
def test_random_batches(seed, dtype, backend):
    datas, regions, flips = random_batch(seed, dtype, 4, pixels=1000)
    images = decode_batch(datas, regions=regions, flips=flips, device=DEVICE, backend=backend)

    assert_same(images, datas, regions, flips)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
@pytest.mark.parametrize("seed", range(10, 30))
def test_many_random_batches(seed, dtype, backend):
    datas, regions, flips = random_batch(seed, dtype, 16, pixels=20_000)
    images = decode_batch(datas, regions=regions, flips=flips, device=DEVICE, backend=backend)

    assert_same(images, datas, regions, flips)


@pytest.mark.parametrize("mode", MODES)
def test_regions_across_the_edges_of_tiles(mode, backend):
    """The same file many times, each time another piece of it around the corner where four tiles meet."""
    data = headrace.encode(Recipe(34, 260, 1, content="smooth").render(), mode=mode)
    corner_row, corner_column = headrace.inspect(data).tile_shape
    around = [(1, 1, 1, 1), (0, 2, 3, 1), (2, 0, 0, 4), (1, 0, 1, 0)]
    regions = [(corner_row - up, corner_column - left, up + down, left + right) for up, down, left, right in around]
    images = decode_batch([data] * len(regions), regions=regions, device=DEVICE, backend=backend)

    assert_same(images, [data] * len(regions), regions)


def test_depths_and_modes_mix_in_one_batch(backend):
    """One dtype comes out of all of them; levels are scaled as the CPU's transforms do."""
    recipes = [Recipe(20, 40, 3, dtype, seed=i) for i, dtype in enumerate(("uint8", "uint16", "int16"))]
    datas = [headrace.encode(recipe.render(), mode=mode) for recipe in recipes for mode in MODES]
    images = decode_batch(datas, device=DEVICE, dtype="uint8", backend=backend)
    for image, data in zip(images, datas, strict=True):
        stored = expected_of(data)
        expected = {"uint8": stored, "uint16": stored >> 8, "int16": np.maximum(stored, 0) >> 7}[stored.dtype.name]

        assert np.array_equal(image.cpu().numpy(), expected)


def test_images_of_one_shape_are_one_tensor(backend):
    datas = [headrace.encode(Recipe(9, 40, 3, seed=seed).render(), mode="fast") for seed in range(3)]
    images = decode_batch(datas, device=DEVICE, backend=backend)

    assert isinstance(images, torch.Tensor)
    assert images.shape == (3, 3, 9, 40)
    assert images.is_contiguous()
    assert_same(images, datas)


OPERATIONS = ("coded", "finish", "packed", "palette", "wave")


def device_sizes(name, monkeypatch):
    """The block sizes that an operation has on a device: those of its module where nothing is interpreted."""
    own = import_module(f"headrace.kernels.{name}.triton")
    spec = importlib.util.spec_from_file_location(f"{name}_on_device", own.__file__)
    assert spec is not None
    assert spec.loader is not None
    on_device = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, on_device)
    with monkeypatch.context() as patch:
        patch.setattr(backend, "interprets", lambda: False)
        spec.loader.exec_module(on_device)
    sizes = {size: value for size, value in vars(on_device).items() if size.isupper() and isinstance(value, int)}
    return {size: value for size, value in sizes.items() if value != getattr(own, size)}


@pytest.fixture(params=["device", "two launches"])
def launches_of_a_device(request, monkeypatch):
    """In the interpreter programs take more at a time than on a device; here they take as much, or launch as on AMD."""
    pytest.importorskip("triton")
    for name in OPERATIONS:
        own = import_module(f"headrace.kernels.{name}.triton")
        if request.param == "two launches" and hasattr(own, "phases_of"):
            monkeypatch.setattr(own, "phases_of", lambda _device: (1, 2))
        if request.param == "device":
            sizes = device_sizes(name, monkeypatch)
            assert sizes or devices.HAS_GPU
            for size, value in sizes.items():
                monkeypatch.setattr(own, size, value)


@pytest.mark.usefixtures("launches_of_a_device")
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_sizes_and_launches_as_on_a_device(dtype):
    pictures = [(33, 20, 2, "smooth"), (9, 70, 1, "voronoi"), (9, 40, 2, "noise"), (17, 33, 1, "rectangles")]
    datas = [
        headrace.encode(Recipe(h, w, c, dtype, content).render(), mode=mode)
        for (h, w, c, content) in pictures
        for mode in MODES
    ]

    assert_same(decode_batch(datas, device=DEVICE, backend="triton"), datas)


@pytest.mark.slow
@pytest.mark.usefixtures("launches_of_a_device")
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
def test_many_random_batches_as_on_a_device(dtype):
    datas, regions, flips = random_batch(50, dtype, 8, pixels=4000)
    images = decode_batch(datas, regions=regions, flips=flips, device=DEVICE, backend="triton")

    assert_same(images, datas, regions, flips)
