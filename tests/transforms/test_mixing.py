# SPDX-License-Identifier: Apache-2.0
"""MixUp and CutMix are those of the specification, bit for bit, wherever a batch is made."""

from __future__ import annotations

import numpy as np
import pytest
from tests.transforms.erasing import beta, mix
from tests.transforms.philox import Key

from headrace import _core
from headrace.errors import TransformError
from headrace.transforms import (
    Compose,
    CutMix,
    HorizontalFlip,
    MixUp,
    MixUpCutMix,
    MultiCrop,
    Normalize,
    Resize,
    View,
    Views,
    compile,  # noqa: A004
)
from headrace.transforms.mixing import FIRST_OPERATION, Mixer

KINDS = {
    "mixup": MixUp(0.4, 7),
    "mixup of a large alpha": MixUp(3.0, 7),
    "cutmix": CutMix(1.0, 7),
    "both": MixUpCutMix(0.8, 1.0, 0.7, 0.5, 0.1, 7),
}


def batch(rng, n, dtype="float32", size=(11, 17)):
    images = rng.standard_normal((n, 3, *size)).astype(dtype)
    return images, rng.integers(0, 7, n)


def soft(labels, smoothing):
    rows = np.full((len(labels), 7), smoothing / 7, np.float32)
    rows[np.arange(len(labels)), labels] = 1 - smoothing + smoothing / 7
    return rows


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_that_of_the_specification(kind, dtype):
    """Images and labels, in both layouts."""
    transform, rng = KINDS[kind], np.random.default_rng(4)
    options = transform.options()
    for sample in range(30):
        images, labels = batch(rng, int(rng.integers(2, 6)), dtype)
        key = Key(seed=5, epoch=2, sample=sample)
        expected = mix(images, soft(labels, options.label_smoothing), FIRST_OPERATION, key, options)

        found = transform(images, labels, seed=5, epoch=2, sample=sample)
        last = transform(images.transpose(0, 2, 3, 1), labels, seed=5, epoch=2, sample=sample, layout="HWC")

        for made in (found, (last[0].transpose(0, 3, 1, 2), last[1])):
            assert made[0].dtype == images.dtype
            assert np.array_equal(made[0], expected[0])
            assert made[1].dtype == np.float32
            assert np.allclose(made[1], expected[1], rtol=0, atol=2e-7)
    assert images.flags.writeable, "the given batch is not changed"


def test_threads_make_the_same_batch():
    """A batch that is worth several threads."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((40, 3, 200, 301)).astype(np.float32)
    one, many = images.copy(), images.copy()

    _core.mix_images(one, 0.3, 1)
    _core.mix_images(many, 0.3, 5)

    assert np.array_equal(one, many)
    rest, share = np.float32(1 - 0.3), np.float32(0.3)
    assert np.array_equal(one, np.roll(images, 1, 0) * rest + images * share)


def test_a_batch_of_one_is_not_mixed():
    images, labels = batch(np.random.default_rng(1), 1)

    made, rows = MixUpCutMix(0.8, 1.0, num_classes=7)(images, labels)

    assert np.array_equal(made, images)
    assert np.array_equal(rows, soft(labels, 0.1))


def test_two_in_a_row_mix_twice():
    """The second one mixes soft labels, with draws of its own."""
    images, labels = batch(np.random.default_rng(2), 4)
    transforms = (CutMix(num_classes=7), MixUp(num_classes=7))
    mixer = Mixer(transforms, {"image": "image", "label": "int64"}, None, layout="CHW")
    key = Key(seed=1, sample=3)
    expected = images, soft(labels, 0)
    for k, transform in enumerate(transforms):
        expected = mix(*expected, FIRST_OPERATION + k, key, transform.options())

    found = mixer.mix(images.copy(), labels, seed=1, epoch=0, sample=3)

    assert np.array_equal(found[0], expected[0])
    assert np.allclose(found[1], expected[1], atol=1e-6)


def test_tensors_stay_tensors():
    torch = pytest.importorskip("torch")
    images, labels = batch(np.random.default_rng(3), 4)

    made, rows = MixUp(num_classes=7)(torch.from_numpy(images), torch.from_numpy(labels))

    plain = MixUp(num_classes=7)(images, labels)
    assert torch.equal(made, torch.from_numpy(plain[0]))
    assert torch.equal(rows, torch.from_numpy(plain[1]))


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([MixUp()], "MixUp needs float images"),
        ([Normalize(0.5, 0.5), MixUp(), Resize(5)], "MixUp must be the last .*; found Resize after it"),
        ([MixUp(), Normalize(0.5, 0.5)], "found Normalize after it"),
        ([Views(2, [Resize(5)]), CutMix()], "CutMix mixes samples of one view"),
        ([MultiCrop([View(1, [Resize(5)]), View(1, [Resize(6)])]), CutMix()], "it cannot be used with MultiCrop"),
    ],
)
def test_wrong_lists_are_refused(transforms, message):
    with pytest.raises(ValueError, match=message):
        compile(transforms)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MixUp(0), "alpha must be in"),
        (lambda: CutMix(num_classes=0), "num_classes must be in"),
        (lambda: MixUpCutMix(0, 0), "mixup_alpha or cutmix_alpha must be > 0"),
        (lambda: MixUpCutMix(1e-9), "must be 0 or at least 0.001"),
        (lambda: Views(2, [MixUp()]), "mixes batches, not views"),
        (lambda: MixUp()(np.zeros((2, 3, 4, 4), np.float32), np.array([0, 1])), "needs num_classes"),
        (lambda: MixUp(num_classes=7)(np.zeros((2, 3, 4, 4), np.float32), np.array([0, 7])), "got 7"),
        (lambda: MixUp(num_classes=7)(np.zeros((2, 3, 4), np.float32), np.array([0, 6])), "images of one shape"),
        (lambda: MixUp(num_classes=7)(np.zeros((2, 3, 4, 4), np.uint8), np.array([0, 6])), "float32 or float16"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises((ValueError, TransformError), match=message):
        make()


def test_a_sample_is_no_batch():
    with pytest.raises(TypeError, match="CutMix needs a batch"):
        Compose([HorizontalFlip(), CutMix()])(np.zeros((5, 5, 3), np.uint8))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.8, 1.0, 1.5, 20.0])
def test_shares_follow_the_beta_distribution(alpha):
    """Kolmogorov-Smirnov over batches, and the core's numbers are those of the specification."""
    stats = pytest.importorskip("scipy.stats")
    drawn = {"cutmix_alpha": 0, "probability": 1, "switch_probability": 0, "height": 4, "width": 4, "epoch": 0}
    shares = []
    for sample in range(4000):
        kind, share, _ = _core.draw_mix(mixup_alpha=alpha, **drawn, seed=3, sample=sample, operation=FIRST_OPERATION)
        assert kind == "mixup"
        if sample < 200:
            assert share == pytest.approx(
                beta(alpha, Key(seed=3, sample=sample), FIRST_OPERATION), rel=1e-12, abs=1e-300
            )
        shares.append(share)

    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > 1e-3
