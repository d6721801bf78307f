# SPDX-License-Identifier: Apache-2.0
"""Transforms that run others: what they choose is what spec/recipe.md says, and as often as it says."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from tests.transforms.philox import Key, below, unit
from tests.transforms.samples import any_key, noise

from headrace.transforms import (
    AutoContrast,
    Equalize,
    GaussianBlur,
    Grayscale,
    HorizontalFlip,
    Invert,
    Normalize,
    OneOf,
    Pad,
    Posterize,
    RandomApply,
    RandomChoice,
    RandomCrop,
    RandomOrder,
    RandomResizedCrop,
    Resize,
    Solarize,
    VerticalFlip,
    Views,
    compile,  # noqa: A004
    from_json,
)

KEYS = list(map(any_key, map(np.random.default_rng, range(60))))
STEPS = [Invert(1), Posterize(3, 1), Solarize(100, 1), AutoContrast(1), Equalize(1), GaussianBlur(3)]
NAMES = ["invert", "posterize", "solarize", "autocontrast", "equalize", "gaussian_blur"]


def colors(transforms, key):
    passes = compile(transforms).image.passes(5, 6, **key.arguments())
    return [name for each in passes for name, _ in each["colors"]]


def test_apply_is_all_or_nothing():
    """The operation before the body draws once; the numbers of the body count on behind it."""
    for key in KEYS:
        found = colors([Invert(0), RandomApply([Invert(1), Posterize(3, 0.5)], 0.4)], key)

        expected = ["invert"] + ["posterize"] * (unit(key.words(3)[0]) < 0.5)
        assert found == (expected if unit(key.words(1)[0]) < 0.4 else [])


def test_choice_picks_by_weight():
    weights = [1, 0, 3, 0.5]
    for key in KEYS:
        found = colors([RandomChoice(STEPS[:4], weights)], key)

        at = int(np.searchsorted(np.cumsum(weights), unit(key.words(0)[0]) * sum(weights), "right"))
        assert found == [NAMES[at]]


def test_order_is_a_shuffle_from_the_front():
    for key in KEYS:
        order = list(NAMES)
        for k in range(5):
            j = k + below(key.words(0, k // 4)[k % 4], 6 - k)
            order[k], order[j] = order[j], order[k]
        assert colors([RandomOrder(STEPS)], key) == order


def test_one_of_is_one_or_none():
    for key in KEYS:
        found = colors([OneOf(STEPS, 0.6)], key)

        chosen = [NAMES[below(key.words(1)[0], 6)]]
        assert found == (chosen if unit(key.words(0)[0]) < 0.6 else [])


def test_draws_do_not_depend_on_what_was_chosen():
    """What stands behind a choice draws the same, whatever it chose."""
    behind = [Posterize(3, 0.5), Solarize(7, 0.5), Invert(0.5)]
    for key in KEYS:
        first = colors([OneOf([AutoContrast(1), RandomApply([Equalize(1)])], 0.5), *behind], key)
        never = colors([OneOf([AutoContrast(1), RandomApply([Equalize(1)])], 0), *behind], key)
        assert first[-len(never) :] == never or not never


@pytest.mark.slow
def test_choices_follow_their_weights():
    """Chi-square over 20000 samples: choices, orders and probabilities."""
    weights = [1, 2, 3, 4, 5, 6]
    nested = [RandomChoice(STEPS, weights)]
    orders = [RandomOrder(STEPS[:4])]
    n = 20000
    picked = Counter(colors(nested, Key(sample=sample))[0] for sample in range(n))
    shuffled = Counter(tuple(colors(orders, Key(seed=1, sample=sample))) for sample in range(n))
    applied = sum(bool(colors([RandomApply(STEPS[:1], 0.3)], Key(seed=2, sample=sample))) for sample in range(n))

    assert stats.chisquare([picked[name] for name in NAMES], [n * w / 21 for w in weights]).pvalue > 1e-4
    assert len(shuffled) == 24
    assert stats.chisquare(list(shuffled.values())).pvalue > 1e-4
    assert stats.binomtest(applied, n, 0.3).pvalue > 1e-4


def test_masks_go_the_same_way():
    """A choice of geometry moves the mask with the image, and without interpolation."""
    moves = [
        RandomChoice([HorizontalFlip(1), VerticalFlip(1), RandomApply([RandomCrop(25), Pad(4)])]),
        RandomOrder([HorizontalFlip(), RandomCrop((10, 20)), OneOf([VerticalFlip(1), Pad(3)])]),
    ]
    resizing = RandomApply([OneOf([Resize(20), RandomResizedCrop(30)], 1)], 1)
    image = noise(np.random.default_rng(0), 40, 50, 1, "uint8")
    for key in KEYS:
        moved, resized = compile(moves, layout="HWC", color="keep"), compile([resizing])

        assert np.array_equal(
            moved.image.apply(image, **key.arguments())[..., 0], moved.mask.apply(image, **key.arguments())
        )
        (only,) = resized.mask.passes(40, 50, **key.arguments())
        (other,) = resized.image.passes(40, 50, **key.arguments())
        assert only == {**other, "filter": "nearest"}


def test_pixels_are_those_of_what_was_chosen():
    image = noise(np.random.default_rng(0), 20, 30, 3, "uint8")
    options = [HorizontalFlip(1), Posterize(2, 1), RandomOrder([Invert(1), VerticalFlip(1)])]
    singles = [compile([option]).image.apply(image, **KEYS[0].arguments()) for option in options]
    seen = set()
    for sample in range(30):
        found = compile([RandomChoice(options)]).image.apply(image, seed=0, epoch=0, sample=sample)
        seen.add(next(k for k, single in enumerate(singles) if np.array_equal(found, single)))
    assert seen == {0, 1, 2}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RandomApply([]), ValueError, "RandomApply: transforms must have at least one"),
        (lambda: RandomApply(Invert()), TypeError, "must be a list"),
        (lambda: RandomApply([abs]), TypeError, "must be declarative"),
        (lambda: RandomApply([Normalize(0.5, 0.5)]), ValueError, "Normalize must not be inside RandomApply"),
        (lambda: OneOf([Views(2, [Invert()])]), ValueError, "Views must not be inside OneOf"),
        (lambda: RandomApply([Invert()], 2), ValueError, r"RandomApply: p must be in \[0, 1\]; got 2"),
        (lambda: RandomChoice([Invert()], [1, 2]), ValueError, "one weight for each of the 1 transforms"),
        (lambda: RandomChoice([Invert()], [0]), ValueError, "a weight > 0"),
        (lambda: RandomChoice([Invert()], [-1]), ValueError, "must be in"),
        (lambda: RandomChoice([RandomOrder([Grayscale()])]), ValueError, r"Grayscale\(channels=3\)"),
        (lambda: RandomOrder([Invert()] * 65), ValueError, "at most 64"),
    ],
)
def test_wrong_arguments_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_nesting_is_limited():
    deep = Invert()
    for _ in range(8):
        deep = RandomApply([deep])
    assert compile([deep])
    with pytest.raises(ValueError, match="at most 8"):
        compile([RandomApply([deep])])


def test_nested_transforms_come_back_from_json():
    made = RandomApply([RandomChoice([Invert(), RandomOrder([Invert(0.1), OneOf([Posterize(3)])])], [1, 2])], 0.3)

    assert from_json(json.loads(json.dumps(made.to_json()))) == made
    with pytest.raises(ValueError, match="transform 0: transform 'invert': unknown member"):
        from_json({"op": "one_of", "transforms": [{"op": "invert", "q": 1}]})
