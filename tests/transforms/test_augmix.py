# SPDX-License-Identifier: Apache-2.0
"""A mix is the weighted sum of a picture and of what its branches make of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from tests.transforms.philox import Key, unit
from tests.transforms.samples import noise

from headrace import _core
from headrace.transforms import AugMix, HorizontalFlip, Resize, compile  # noqa: A004

OPTIONS = {"dtype": None, "mean": None, "std": None, "layout": "HWC", "color": "keep", "mask": False}


def mixed(alpha, *bodies):
    """The operations of a mix, and of what follows it."""
    branches = [each for body in bodies for each in (("branch", (1, len(body))), *body)]
    return [("mix", (alpha, len(branches))), *branches]


def gamma(key, operation, which, alpha):
    """Marsaglia and Tsang's method, with the blocks of spec/recipe.md."""
    shape = alpha + 1 if alpha < 1 else alpha
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    power = (1 - unit(key.words(operation, 16 * which)[3])) ** (1 / alpha) if alpha < 1 else 1
    for attempt in range(16):
        w = key.words(operation, 16 * which + attempt)
        x = math.sqrt(-2 * math.log(1 - unit(w[0]))) * math.cos(2 * math.pi * unit(w[1]))
        v = (1 + c * x) ** 3
        if v > 0 and math.log(1 - unit(w[2])) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v * power
    return d * power


def weights(key, operation, alpha, n):
    first, second, *others = (gamma(key, operation, which, alpha) for which in range(2 + n))
    kept = first / (first + second)
    return [kept, *((1 - kept) * other / sum(others) for other in others)]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
@pytest.mark.parametrize("alpha", [0.3, 1, 4])
def test_a_mix_adds_up_its_branches(dtype, alpha):
    bodies = [[("invert", (1,))], [], [("gaussian_blur", (5, 5, 1, 1)), ("horizontal_flip", (1,))]]
    operations = mixed(alpha, *bodies)
    for sample in range(12):
        key = Key(seed=5, sample=sample)
        image = noise(np.random.default_rng(sample), 13, 17, 3, dtype)
        terms = [image, *(_core.Transform(body, **OPTIONS).apply(image, **key.arguments()) for body in bodies)]
        expected = sum(w * term for w, term in zip(weights(key, 0, alpha, 3), terms, strict=True))

        found = _core.Transform(operations, **OPTIONS).apply(image, **key.arguments())
        assert np.abs(found - expected).max() <= 0.501 + 0.01 * (dtype != "uint8")


def test_what_surrounds_a_mix_is_done_to_all_of_it():
    """Two mixes, with a flip before and an inversion behind each."""
    step = mixed(1.0, [("posterize", (1, 0, 0, 2, 2, 2, 2, 0, 0, 1))])
    operations = [("horizontal_flip", (1,)), *step, ("invert", (1,)), *step, ("invert", (1,))]
    image = noise(np.random.default_rng(1), 9, 8, 3, "uint8")
    for sample in range(8):
        key = Key(sample=sample)
        picture = image[:, ::-1]
        for operation in (1, 5):
            w = weights(key, operation, 1.0, 1)
            picture = np.floor(w[0] * picture + w[1] * (picture // 64 * 64) + 0.5)
            picture = (255 - picture).astype(np.uint8)
        found = _core.Transform(operations, **OPTIONS).apply(image, **key.arguments())
        assert np.abs(found.astype(int) - picture).max() <= 1


def test_a_branch_must_keep_the_size():
    transform = _core.Transform(mixed(1.0, [("pad", (1, 1, 1, 1, 0, 0))]), **OPTIONS)
    with pytest.raises(ValueError, match="keep the size"):
        transform.apply(np.zeros((4, 4, 3), np.uint8), **Key().arguments())


@pytest.mark.parametrize(
    "operations",
    [
        mixed(1.0),
        mixed(0.001, []),
        mixed(1.0, *[[]] * 15),
        mixed(1.0, mixed(1.0, [])),
        mixed(1.0, [("grayscale", (1, 1))]),
        [("mix", (1, 1)), ("invert", (1,))],
    ],
)
def test_wrong_mixes_are_refused(operations):
    with pytest.raises(ValueError, match=r"mix|branch|grayscale"):
        _core.Transform(operations, **OPTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.2, 1, 3])
def test_weights_have_the_distribution_of_dirichlet(alpha):
    """One pixel of 30000 between two that are 0 shows the weight of its branch."""
    white = [("solarize", (1, 1, 0, 0, 0, 0, 0, 0, 0, 1))]  # 0 becomes 65535
    transform = _core.Transform(mixed(alpha, [], white), **OPTIONS)
    black = np.zeros((1, 1, 1), np.uint16)
    found = [transform.apply(black, seed=1, epoch=0, sample=k)[0, 0, 0] / 65535 for k in range(30000)]

    # (1 - beta(a, a)) * beta(a, a)
    expected = stats.beta(alpha, alpha).rvs((2, 200000), random_state=1).prod(axis=0)
    assert stats.ks_2samp(found, np.round(expected * 65535) / 65535).pvalue > 1e-4


def test_aug_mix_leaves_masks_and_boxes():
    compiled = compile([Resize((20, 30)), AugMix(), HorizontalFlip(1)])
    mask = np.arange(600, dtype=np.uint8).reshape(20, 30)

    assert np.array_equal(compiled.mask.apply(mask, **Key().arguments()), mask[:, ::-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"severity": 11}, "severity"),
        ({"mixture_width": 5}, "at most 14"),
        ({"chain_depth": 0}, "chain_depth"),
        ({"alpha": 0}, "alpha"),
    ],
)
def test_wrong_arguments_of_aug_mix_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        AugMix(**arguments)
