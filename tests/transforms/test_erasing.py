# SPDX-License-Identifier: Apache-2.0
"""Random erasing overwrites the rectangles of the specification, with the same bits in every layout and dtype."""

from __future__ import annotations

import numpy as np
import pytest
from tests.transforms.erasing import erase, normal
from tests.transforms.philox import Key
from tests.transforms.samples import any_key, noise

from headrace import _core
from headrace.transforms import (
    CenterCrop,
    HorizontalFlip,
    MixUp,
    MultiCrop,
    Normalize,
    RandomApply,
    RandomErasing,
    Resize,
    View,
    compile,  # noqa: A004
)

VALUES = [0, 3.7, (1.0, -300.0, 60000.0), "random", "color"]


def given(transform: RandomErasing) -> dict:
    return {name: getattr(transform, name) for name in ("p", "scale", "ratio", "value", "count")}


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float16", "float32"])
@pytest.mark.parametrize("value", VALUES, ids=str)
def test_it_is_that_of_the_specification(dtype, value):
    """Any size, channels and key; both layouts."""
    rng = np.random.default_rng(len(dtype) + VALUES.index(value))
    for trial in range(25):
        height, width = rng.integers(1, 40, 2).tolist()
        stored = dtype if dtype.endswith("int16") or dtype == "uint8" else "uint8"
        image = noise(rng, height, width, int(rng.choice([1, 3, 4])), stored)
        transform = RandomErasing(0.9, (0.02, 0.9), (0.2, 4.0), value, [1, (1, 3)][trial % 2])
        key, made_dtype = any_key(rng), None if dtype == stored else dtype
        plain = compile([HorizontalFlip()], dtype=made_dtype, color="keep").image.apply(image, **key.arguments())

        expected = erase(plain, 1, key, given(transform))

        for layout in ("CHW", "HWC"):
            compiled = compile([HorizontalFlip(), transform], dtype=made_dtype, color="keep", layout=layout)
            found = compiled.image.apply(image, **key.arguments())
            assert found.dtype == expected.dtype
            assert np.array_equal(found if layout == "CHW" else found.transpose(2, 0, 1), expected)


def test_it_comes_after_normalize():
    """A value is on the scale of the output."""
    image = np.full((20, 20, 3), 200, np.uint8)
    compiled = compile([Resize(16), Normalize(0.5, 0.25), RandomErasing(1.0, (0.3, 0.3), (1, 1))])

    made = compiled.image.apply(image, seed=1, epoch=0, sample=2)

    assert made.dtype == np.float32
    assert set(np.unique(made)) == {np.float32(0), made.max()}
    assert np.count_nonzero(made[0] == 0) == round((256 * 0.3) ** 0.5) ** 2


def test_masks_are_not_erased():
    compiled = compile([CenterCrop(9), RandomErasing(1.0, value=7)])
    mask = np.arange(100, dtype=np.uint8).reshape(10, 10)

    assert np.array_equal(
        compiled.mask.apply(mask, seed=0, epoch=0, sample=0),
        compile([CenterCrop(9)]).mask.apply(mask, seed=0, epoch=0, sample=0),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": 2}, "p must be in"),
        ({"scale": (0, 0.5)}, "scale must be in"),
        ({"scale": (0.1, 2)}, "scale must be in"),
        ({"ratio": (0, 1)}, "ratio must be in"),
        ({"value": "pixel"}, "'color', 'random'"),
        ({"value": [1.0] * 8}, "1 to 7"),
        ({"count": 0}, "count must be in"),
        ({"count": (3, 2)}, "min <= max"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RandomErasing(**arguments)


def test_only_batch_transforms_follow_it():
    with pytest.raises(ValueError, match=r"RandomErasing must be the last .*; found Resize after it"):
        compile([RandomErasing(), Resize(5)])
    with pytest.raises(ValueError, match="found Normalize after it"):
        compile([RandomErasing(), Normalize(0.5, 0.5)])


@pytest.mark.parametrize("inside", [RandomErasing(), MixUp(num_classes=2), MultiCrop([View(1, []), View(1, [])])])
def test_it_is_not_applied_by_chance_or_choice(inside):
    """Nor are transforms of batches and groups of views: their place is the end of the list, or all of it."""
    with pytest.raises(ValueError, match="must not be inside RandomApply"):
        RandomApply([inside])


def test_the_core_refuses_what_python_would_not_send():
    for parameters in (
        (0.5, 0.1, 0.5, 1, 1, 0, 1, 0, 1, 0),
        (0.5, 0.1, 0.5, 1, 1, 1, 1, 3, 1, 0),
        (0.5, 0, 1, 1, 1, 1, 1),
    ):
        with pytest.raises(ValueError, match="random_erasing"):
            _core.Transform(
                [("random_erasing", parameters)],
                dtype=None,
                layout="CHW",
                mean=None,
                std=None,
                color="keep",
                mask=False,
            )


@pytest.mark.slow
def test_random_pixels_are_normal():
    """Kolmogorov-Smirnov, moments, and the tails."""
    stats = pytest.importorskip("scipy.stats")
    words = np.random.default_rng(5).integers(0, 2**32, 4_000_000, np.uint32)

    numbers = normal(words)

    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    steps = np.arange(0, 2**24, 997, np.int64)  # from the lower tail to the upper one
    exact = stats.norm.ppf((steps + 0.5) / 2**24)
    assert np.abs(normal((steps - 2**23 << 8 & 0xFFFFFFFF).astype(np.uint32)) / exact - 1).max() < 1e-5


@pytest.mark.slow
def test_rectangles_follow_their_distribution():
    """How often, and the share of the area: chi-square over ten bins."""
    stats = pytest.importorskip("scipy.stats")
    image, areas, n = np.ones((100, 100), np.uint8), [], 6000
    compiled = compile([RandomErasing(0.25, (0.02, 0.3), (1, 1))], color="keep")
    for sample in range(n):
        made = compiled.image.apply(image, **Key(sample=sample, seed=9).arguments())
        areas.append(np.count_nonzero(made == 0) / 10_000)
    erased = [area for area in areas if area]

    assert abs(len(erased) / n - 0.25) < 0.02
    found, _ = np.histogram(erased, 10, (0.02, 0.3))
    assert stats.chisquare(found[1:-1]).pvalue > 1e-3
