# SPDX-License-Identifier: Apache-2.0
"""Whatever the image and the list of operations: no crash, no level out of range, and the same bits on all targets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transforms.samples import noise

import headrace.codec
from headrace import _core, transforms
from headrace.errors import HeadraceError
from headrace.transforms._photometric import constant, enhance

SIDES = st.one_of(st.integers(1, 9), st.integers(1, 70))
LARGE_SIDES = st.one_of(st.integers(1, 20), st.integers(1, 400))

SIMPLE = st.one_of(
    st.builds(transforms.Invert, p=st.just(1)),
    st.builds(transforms.Posterize, st.integers(0, 16), p=st.just(1)),
    st.builds(transforms.Solarize, st.integers(-40000, 70000).filter(lambda t: -32768 <= t <= 65536), p=st.just(1)),
    st.builds(transforms.AutoContrast, p=st.just(1)),
    st.builds(transforms.Equalize, p=st.just(1)),
    st.builds(transforms.AdjustSharpness, st.floats(0, 20), p=st.just(1)),
    st.builds(transforms.GaussianBlur, st.integers(0, 20).map(lambda k: 2 * k + 1), st.floats(0.01, 30)),
    st.builds(transforms.GaussianNoise, st.floats(-1, 1), st.floats(0, 10)),
    st.builds(transforms.RandomChannelPermutation),
    st.builds(transforms.JPEG, st.integers(1, 100)),
    st.builds(transforms.ColorJitter, st.floats(0, 2), st.floats(0, 2), st.floats(0, 2), st.floats(0, 0.5)),
    st.builds(transforms.HorizontalFlip),
    st.builds(transforms.Pad, st.integers(0, 5), padding_mode=st.sampled_from(["constant", "edge", "reflect"])),
    st.builds(transforms.Resize, st.integers(1, 60)),
)
SCALES = st.floats(0.2, 3)
FILTERS = st.sampled_from(["nearest", "bilinear", "bicubic"])
GEOMETRY = st.one_of(
    st.builds(transforms.RandomRotation, st.floats(0, 180), FILTERS, expand=st.booleans()),
    st.builds(
        transforms.RandomAffine,
        st.floats(0, 360),
        st.tuples(st.floats(0, 1), st.floats(0, 1)),
        SCALES.map(lambda s: (s, 2 * s)),
        st.floats(0, 80),
        FILTERS,
        st.integers(-40000, 70000).filter(lambda level: -32768 <= level <= 65535),
    ),
    st.builds(transforms.RandomPerspective, st.floats(0, 1), st.just(1), FILTERS),
    st.builds(transforms.ElasticTransform, st.floats(0, 2000), st.floats(1, 40), FILTERS),
    st.builds(transforms.Letterbox, st.integers(1, 90)),
    st.builds(transforms.ScaleJitter, st.integers(1, 90)),
    st.builds(transforms.RandomZoomOut, p=st.just(1)),
    st.builds(transforms.RandomCrop, st.integers(1, 60), pad_if_needed=st.just(True)),
)
POLICIES = st.one_of(
    st.builds(transforms.AutoAugment, st.sampled_from(["imagenet", "cifar10", "svhn"]), FILTERS),
    st.builds(transforms.RandAugment),
    st.builds(transforms.TrivialAugmentWide),
    st.builds(transforms.AugMix),
    st.just(transforms.TimmAugment("rand-m9-mstd0.5-inc1")),
)
STEPS = st.lists(
    st.one_of(
        SIMPLE,
        GEOMETRY,
        st.builds(transforms.RandomApply, st.lists(SIMPLE, min_size=1, max_size=3)),
        st.builds(transforms.RandomOrder, st.lists(SIMPLE, min_size=1, max_size=3)),
        st.builds(transforms.OneOf, st.lists(st.one_of(SIMPLE, GEOMETRY), min_size=1, max_size=3)),
    ),
    max_size=5,
)


# A policy has hundreds of operations, of which there may be 512.
LISTS = st.builds(list.__add__, STEPS, st.lists(POLICIES, max_size=1))


@contextmanager
def on_target(name: str) -> Iterator[None]:
    before = headrace.codec.active_target()
    headrace.codec.use_target(name)
    try:
        yield
    finally:
        headrace.codec.use_target(before)


def apply_on_all(compiled, image, sample):
    """Return what all targets make of the image, or None if they refuse it."""
    made = []
    for name in headrace.codec.targets():
        with on_target(name):
            try:
                made.append(compiled.image.apply(image, seed=1, epoch=2, sample=sample))
            except (ValueError, HeadraceError) as error:
                made.append(str(error))
    if isinstance(made[0], str):
        assert set(map(str, made)) == {made[0]}
        return None
    assert all(np.array_equal(each, made[0], equal_nan=False) for each in made)
    return made[0]


def check(steps, height, width, channels, dtype, out, seed):
    image = noise(np.random.default_rng(seed), height, width, channels, dtype)
    if seed % 3 == 0:
        image = image // 8
    found = apply_on_all(transforms.compile(steps, dtype=out, layout="HWC", color="keep"), image, seed)
    if found is not None and out is not None:
        assert np.isfinite(found).all()
        assert found.min() >= (-1 if dtype == "int16" else 0)
        assert found.max() <= 1.0001


DTYPES = st.sampled_from(["uint8", "uint8", "uint16", "int16"])
OUTPUTS = st.sampled_from([None, "float32"])


@settings(max_examples=120, deadline=None)
@given(LISTS, SIDES, SIDES, st.integers(1, 8), DTYPES, OUTPUTS, st.integers(0, 1000))
def test_any_list_on_any_image(steps, height, width, channels, dtype, out, seed):
    check(steps, height, width, channels, dtype, out, seed)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(LISTS, LARGE_SIDES, LARGE_SIDES, st.integers(1, 8), DTYPES, OUTPUTS, st.integers(0, 1000))
def test_any_list_on_any_large_image(steps, height, width, channels, dtype, out, seed):
    check(steps, height, width, channels, dtype, out, seed)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_enhancements_are_the_same_on_all_targets(dtype, channels):
    image = noise(np.random.default_rng(3), 33, 301, channels, dtype)
    for what in range(4):
        for factor in (0, 0.3, 1, 1.9, 20):
            operations = [enhance(1, what, constant(factor))]
            options = {"dtype": None, "mean": None, "std": None, "mask": False}
            made = []
            for name in headrace.codec.targets():
                with on_target(name):
                    transform = _core.Transform(operations, layout="HWC", color="keep", **options)
                    made.append(transform.apply(image, seed=0, epoch=0, sample=0))
            assert all(np.array_equal(each, made[0]) for each in made)
