# SPDX-License-Identifier: Apache-2.0
"""Resizes and pads for detection have the sizes of torchvision's and Ultralytics' formulas, with the recipe's draws."""

from __future__ import annotations

import numpy as np
import pytest
from tests.transforms.philox import below, uniform, unit
from tests.transforms.samples import any_key, noise

from headrace.transforms import (
    Letterbox,
    RandomShortestSize,
    RandomZoomOut,
    ScaleJitter,
    compile,  # noqa: A004
)

SEEDS = range(30)


def any_case(seed):
    rng = np.random.default_rng(seed)
    return rng, *rng.integers(1, 300, 2).tolist(), any_key(rng)


def shape_of(transform, height, width, key):
    (_, *size), _ = compile([transform]).image.shape(height, width, 3, "uint8", **key.arguments())
    return tuple(size)


@pytest.mark.parametrize("seed", SEEDS)
def test_scale_jitter_is_torchvisions(seed):
    """The factor is drawn, and the fraction of each side cut off."""
    _, height, width, key = any_case(seed)

    factor = min(100 / height, 80 / width) * uniform(key.words(0)[0], 0.5, 2)

    expected = max(1, int(height * factor)), max(1, int(width * factor))
    assert shape_of(ScaleJitter((100, 80), (0.5, 2)), height, width, key) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_the_shortest_size_is_torchvisions(seed):
    """One of the sizes, unless the longer side would become too long."""
    _, height, width, key = any_case(seed)
    sizes = (30, 40, 50)

    factor = sizes[below(key.words(0)[0], 3)] / min(height, width)
    factor = min(factor, 90 / max(height, width))

    expected = max(1, int(height * factor)), max(1, int(width * factor))
    assert shape_of(RandomShortestSize(sizes, 90), height, width, key) == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scaleup", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_letterbox_is_that_of_ultralytics(seed, scaleup, center):
    """What is missing is filled, half of it before the image."""
    rng, height, width, key = any_case(seed)
    size = tuple(rng.integers(20, 200, 2).tolist())
    image = np.full((height, width, 3), 200, np.uint8)
    letterbox = Letterbox(size, scaleup=scaleup, center=center)

    found = compile([letterbox], layout="HWC").image.apply(image, **key.arguments())

    scale = min(size[0] / height, size[1] / width)
    scale = scale if scaleup else min(scale, 1.0)
    inner = [max(1, min(most, round(side * scale))) for side, most in zip((height, width), size, strict=True)]
    expected = np.full((*size, 3), 114, np.uint8)
    # Ultralytics: round(d / 2 - 0.1) pixels before the image.
    top, left = (round((a - b) / 2 - 0.1) if center else 0 for a, b in zip(size, inner, strict=True))
    expected[top : top + inner[0], left : left + inner[1]] = 200
    assert np.array_equal(found, expected)
    mask = compile([letterbox]).mask.apply(np.full((height, width), 200, np.uint8), **key.arguments())
    assert np.array_equal(mask == 200, expected[..., 0] == 200)
    assert set(np.unique(mask).tolist()) <= {0, 200}


@pytest.mark.parametrize("seed", SEEDS)
def test_zooming_out_is_torchvisions(seed):
    """The image lies at a drawn place of a larger canvas."""
    rng, height, width, key = any_case(seed)
    image = noise(rng, height, width, 3, "uint8")
    zoom = RandomZoomOut(9, (1, 3), 0.7)

    found = compile([zoom], layout="HWC").image.apply(image, **key.arguments())

    words = key.words(0)
    if unit(words[0]) >= 0.7:
        assert np.array_equal(found, image)
        return
    factor = uniform(words[1], 1, 3)
    expected = np.full((int(height * factor), int(width * factor), 3), 9, np.uint8)
    left = int((expected.shape[1] - width) * unit(words[2]))
    top = int((expected.shape[0] - height) * unit(words[3]))
    expected[top : top + height, left : left + width] = image
    assert np.array_equal(found, expected)
