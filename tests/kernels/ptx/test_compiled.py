# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels, executed with the block sizes of a device: the pixels and verdicts of the CPU, and no hazard.

`make kernels` runs these; they take minutes. The executor raises on any hazard, so a test that ends found none.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch
from tests.codec.pictures import Recipe
from tests.kernels import test_finish, test_images, test_resize, test_safety, test_vectors

import headrace
from headrace.kernels import ResizeWindow, decode_batch, resize_batch

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("executor")]
BACKEND = "triton"


def test_block_sizes_are_those_of_a_device():
    """If the interpreter's sizes were compiled, the rest of this file would prove little."""
    coded, wave = (import_module(f"headrace.kernels.{name}.triton") for name in ("coded", "wave"))
    assert (coded.BLOCKS, coded.CHUNK, wave.CHAINS) == (64, 64, 1)


@pytest.mark.parametrize("batch", test_vectors.BATCHES)
def test_every_valid_vector_gives_its_pixels(batch, executor):
    test_vectors.assert_pixels(test_vectors.BATCHES[batch], BACKEND)
    assert executor.launches["finish_kernel"]


def test_every_invalid_vector_is_found():
    test_vectors.assert_found(test_vectors.flawed_inside(), BACKEND)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
@pytest.mark.parametrize("seed", range(12))
def test_crops_and_flips_of_random_images(seed, dtype):
    datas, regions, flips = test_images.random_batch(100 + seed, dtype, 16, pixels=20_000)
    images = decode_batch(datas, regions=regions, flips=flips, device="cpu", backend=BACKEND)

    test_images.assert_same(images, datas, regions, flips)


@pytest.mark.parametrize("mode", ["fast", "dense"])
def test_crops_around_the_corners_of_tiles(mode):
    test_images.test_regions_across_the_edges_of_tiles(mode, BACKEND)


def test_depths_and_modes_in_one_batch():
    test_images.test_depths_and_modes_mix_in_one_batch(BACKEND)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float16", "float32"])
def test_dtypes(dtype):
    test_finish.test_dtypes(dtype, BACKEND)
    if "float" in dtype:
        test_finish.test_normalisation(dtype, BACKEND)


def test_channels_and_strides():
    test_finish.test_rgb_of_one_to_four_channels(BACKEND)
    test_finish.test_out_of_any_strides(BACKEND)
    test_finish.test_one_mean_serves_all_channels(BACKEND)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
@pytest.mark.parametrize("made", ["same", "float32"])
def test_resize_equals_the_reference(dtype, made):
    """Both add up the same products; the reference in another order, so levels may differ by one."""
    sizes = [(37, 61), (20, 20), (90, 13), (5, 7), (1, 1)]
    images = [test_resize.tensor(test_resize.picture(*size, dtype=dtype)) for size in sizes]
    resizes = [ResizeWindow(size, (24, 40), begin=(1, 2), count=(20, 33)) for size in sizes]
    flips = [i % 2 == 1 for i in range(len(sizes))]
    options = {} if made == "same" else {"dtype": made}
    found, expected = (
        resize_batch(images, resizes, flips=flips, backend=backend, **options) for backend in (BACKEND, "reference")
    )
    levels = {"uint8": 255, "uint16": 65535, "int16": 32768}[dtype] if made == "float32" else 1
    difference = found.numpy().astype(np.float64) - expected.numpy().astype(np.float64)
    assert np.abs(difference).max() * levels <= 1.001


def test_a_window_of_what_was_decoded():
    test_resize.test_a_window_of_what_was_decoded(BACKEND)


@pytest.mark.parametrize("seed", range(6))
def test_mutated_files_have_the_verdict_of_the_cpu(seed):
    datas = test_safety.mutants(200 + seed, 60)
    images, status = test_safety.decode_all(datas, BACKEND)

    test_safety.assert_verdicts(datas, images, status)
    assert 0 < status.count(0) < len(status)


@pytest.mark.parametrize("mode", ["fast", "dense"])
def test_a_photograph_of_several_tiles(mode):
    """Larger than the vectors: 3 x 3 tiles, smooth with noise, as photographs are."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[0:80, 0:600]
    smooth = np.stack([(y * a + x * b) / 7 for a, b in ((1, 2), (2, 1), (3, 1))], axis=2)
    picture = (smooth + rng.normal(0, 4, smooth.shape)).clip(0, 255).astype(np.uint8)
    [found] = decode_batch([headrace.encode(picture, mode=mode)], device="cpu", backend=BACKEND)

    assert torch.equal(found, torch.from_numpy(np.moveaxis(picture, 2, 0).copy()))


def test_more_channels_than_a_pass_takes():
    """Coded tiles index eight planes at a time."""
    datas = [headrace.encode(Recipe(33, 40, 17, content="smooth").render(), mode=mode) for mode in ("fast", "dense")]

    test_images.assert_same(decode_batch(datas, device="cpu", backend=BACKEND), datas)
