# SPDX-License-Identifier: Apache-2.0
"""Draws follow the documented distributions: chi-square over thousands of samples. Limits are passed once in 10^5."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from headrace.transforms import (
    JPEG,
    AdjustSharpness,
    AutoContrast,
    ColorJitter,
    Equalize,
    GaussianBlur,
    GaussianNoise,
    Grayscale,
    HorizontalFlip,
    Invert,
    Posterize,
    RandomChannelPermutation,
    RandomCrop,
    RandomPerspective,
    RandomRotation,
    RandomShortestSize,
    RandomZoomOut,
    ScaleJitter,
    Solarize,
    VerticalFlip,
    compile,  # noqa: A004
)

stats = pytest.importorskip("scipy.stats")
pytestmark = pytest.mark.slow
N = 6000


def programs(transform, height=1000, width=1000, n=N):
    """The only pass of each sample."""
    core = compile([transform], layout="HWC", color="keep").image
    for sample in range(n):
        (only,) = core.passes(height, width, seed=11, epoch=2, sample=sample)
        yield only


def check_counts(counts, n_kinds):
    """All of `n_kinds` came about equally often."""
    assert len(counts) == n_kinds
    assert stats.chisquare(list(counts.values())).pvalue > 1e-5


def check_uniform(values, low, high):
    counts, _ = np.histogram(values, 20, (low, high))
    assert counts.sum() == len(values)
    assert stats.chisquare(counts).pvalue > 1e-5


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
@pytest.mark.parametrize(
    "kind",
    [Invert, AutoContrast, Equalize, lambda p: Posterize(3, p), lambda p: Solarize(9, p), lambda p: Grayscale(3, p)],
)
def test_probabilities_of_levels(kind, p):
    happened = sum(bool(each["colors"]) for each in programs(kind(p=p) if isinstance(kind, type) else kind(p)))

    assert stats.binomtest(happened, N, p).pvalue > 1e-5


@pytest.mark.parametrize("p", [0.1, 0.8])
def test_probabilities_of_others(p):
    found = {
        "sharpness": sum(bool(each["colors"]) for each in programs(AdjustSharpness(2, p))),
        "across": sum(each["columns"]["flipped"] for each in programs(HorizontalFlip(p))),
        "down": sum(each["rows"]["flipped"] for each in programs(VerticalFlip(p))),
        "perspective": sum(each["warp"] is not None for each in programs(RandomPerspective(0.5, p))),
        "zoom": sum(each["rows"]["canvas"] != 1000 for each in programs(RandomZoomOut(0, (1.5, 2), p))),
    }

    assert all(stats.binomtest(count, N, p).pvalue > 1e-5 for count in found.values()), found


def test_color_jitter():
    """Factors are uniform, and each of the 24 orders is as likely as the others."""
    steps = [each["colors"] for each in programs(ColorJitter(0.4, (0.2, 0.9), 0.3, 0.1))]

    check_counts(Counter(tuple(name for name, _ in each) for each in steps), 24)
    ranges = {"brightness": (0.6, 1.4), "contrast": (0.2, 0.9), "saturation": (0.7, 1.3), "hue": (-0.1, 0.1)}
    for name, limits in ranges.items():
        check_uniform([dict(each)[name] for each in steps], *limits)


def test_blur_and_jpeg():
    """Sigma is uniform, and so is the whole number that is the quality."""
    check_uniform([each["colors"][0][1] for each in programs(GaussianBlur(9, (0.1, 2.0)))], 0.1, 2.0)
    check_counts(Counter(each["colors"][0][1] for each in programs(JPEG((60, 84)))), 25)


@pytest.mark.parametrize("channels", [2, 3, 4, 5])
def test_channel_permutations(channels):
    """Every order; the alpha of four channels stays."""
    core = compile([RandomChannelPermutation()], layout="HWC", color="keep").image
    pixel = np.arange(channels, dtype=np.uint8).reshape(1, 1, channels)
    found = Counter(
        tuple(core.apply(pixel, seed=1, epoch=0, sample=sample).ravel().tolist()) for sample in range(3 * N)
    )

    check_counts(found, {2: 2, 3: 6, 4: 6, 5: 120}[channels])


def test_noise():
    """Normal in all of its quantiles, of 16-bit levels that clip none of them, and independent of the neighbors."""
    image = np.full((300, 400, 3), 32768, np.uint16)
    core = compile([GaussianNoise(0.01, 0.02)], layout="HWC", color="keep").image
    made = np.stack([core.apply(image, seed=1, epoch=0, sample=sample) for sample in range(4)])
    spread = np.random.default_rng(0).uniform(-0.5, 0.5, made.shape)  # so that rounding does not show in the counts
    values = ((made + spread - 32768) / 65535 - 0.01) / 0.02

    counts, _ = np.histogram(stats.norm.cdf(values), 100, (0, 1))
    assert stats.chisquare(counts).pvalue > 1e-5
    assert abs(np.abs(values).max() - 5) < 0.8  # of 1.4 million
    for other in (np.roll(values, 1, axis=k) for k in range(4)):
        assert abs((values * other).mean()) < 5 / np.sqrt(values.size)
    assert abs(((values**2 - 1) * (np.roll(values, 1, axis=2) ** 2 - 1)).mean()) < 12 / np.sqrt(values.size)


def test_rotations_and_perspectives():
    """Angles are uniform; each corner moves inwards by any whole number of pixels up to the largest."""
    maps = np.array([each["warp"]["map"] for each in programs(RandomRotation((-30, 150)))]).reshape(-1, 3, 3)
    check_uniform(np.degrees(np.arctan2(maps[:, 0, 1], maps[:, 0, 0])) * -1, -30, 150)

    maps = [each["warp"]["map"] for each in programs(RandomPerspective(0.5, 1), 81, 121)]
    forward = np.linalg.inv(np.array(maps).reshape(-1, 3, 3))
    for x, y in ((0, 0), (120, 0), (120, 80), (0, 80)):
        moved = forward @ [x, y, 1]
        across, down = np.abs(np.rint(moved[:, :2] / moved[:, 2:]) - [x, y]).T
        check_counts(Counter(across.tolist()), 31)
        check_counts(Counter(down.tolist()), 21)


def test_sizes():
    """Scales and factors are uniform, sizes are chosen evenly, and positions lie anywhere."""
    heights = np.array([each["rows"]["resized"] for each in programs(ScaleJitter(2000, (0.5, 1.5)), 10000, 10000)])
    check_uniform(heights + 0.5, 1000, 3000)
    check_counts(Counter(each["rows"]["resized"] for each in programs(RandomShortestSize((300, 400, 500)))), 3)
    zoomed = list(programs(RandomZoomOut(0, (1, 3), 1), 10000, 10000))
    canvases = np.array([each["rows"]["canvas"] for each in zoomed], np.float64)
    check_uniform(canvases + 0.5, 10000, 30000)
    room = np.maximum(1, canvases - 10000)
    for axis in ("rows", "columns"):
        offsets = np.array([each[axis]["offset"] for each in zoomed]) + 0.5
        check_uniform(np.clip(offsets / room, 0, 1)[room > 100], 0, 1)
    tops = [each["rows"]["start"] for each in programs(RandomCrop(901))]
    check_counts(Counter(tops), 100)
