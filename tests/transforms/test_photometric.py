# SPDX-License-Identifier: Apache-2.0
"""Operations on pixel values give what Pillow gives, or the plain formula where Pillow has none."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps
from tests.transforms.philox import Key, below
from tests.transforms.samples import noise

from headrace import _core
from headrace.transforms import (
    JPEG,
    AdjustSharpness,
    AutoContrast,
    Equalize,
    GaussianBlur,
    GaussianNoise,
    HorizontalFlip,
    Invert,
    Posterize,
    RandomChannelPermutation,
    Solarize,
    compile,  # noqa: A004
)
from headrace.transforms._photometric import constant, enhance

KEY = {"seed": 3, "epoch": 1, "sample": 7}
SIZES = [(1, 1), (1, 9), (2, 2), (3, 3), (5, 1), (17, 31), (64, 65)]


def run(transforms, image, **key):
    return compile(transforms, layout="HWC", color="keep").image.apply(image, **(key or KEY))


def run_operation(operation, image):
    options = {"dtype": None, "mean": None, "std": None, "mask": False}
    return _core.Transform([operation], layout="HWC", color="keep", **options).apply(image, **KEY)


def pillow(function, image):
    """Apply a function of Pillow to `[H, W, 1 or 3]`."""
    made = np.asarray(function(Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)))
    return made.reshape(image.shape)


def images(channels=(1, 3)):
    """Noise, a narrow range of levels, one level, and a ramp."""
    rng = np.random.default_rng(5)
    for height, width in SIZES:
        for n in channels:
            yield noise(rng, height, width, n, "uint8")
            yield (noise(rng, height, width, n, "uint8") // 3 + 40).astype(np.uint8)
            yield np.full((height, width, n), 77, np.uint8)
            yield (np.arange(height * width * n) % 256).astype(np.uint8).reshape(height, width, n)


TWINS = [
    (AutoContrast(1), ImageOps.autocontrast),
    (Equalize(1), ImageOps.equalize),
    (Invert(1), ImageOps.invert),
    *((Posterize(bits, 1), lambda image, bits=bits: ImageOps.posterize(image, bits)) for bits in range(1, 9)),
    *((Solarize(t, 1), lambda image, t=t: ImageOps.solarize(image, t)) for t in (0, 1, 100, 128, 255, 256)),
    *(
        (AdjustSharpness(f, 1), lambda image, f=f: ImageEnhance.Sharpness(image).enhance(f))
        for f in (0, 0.1, 0.5, 1, 1.9, 10)
    ),
]


@pytest.mark.parametrize(("transform", "twin"), TWINS, ids=[repr(transform) for transform, _ in TWINS])
def test_images_of_8_bits_become_exactly_what_pillow_makes_of_them(transform, twin):
    for image in images():
        assert np.array_equal(run([transform], image), pillow(twin, image)), image.shape


@pytest.mark.parametrize(
    ("what", "twin"), list(enumerate([ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]))
)
@pytest.mark.parametrize("factor", [0, 0.1, 0.37, 0.9, 1, 1.5, 1.9])
def test_enhancements_of_policies_are_those_of_pillow(what, twin, factor):
    for image in images():
        found = run_operation(enhance(1, what, constant(factor)), image)
        assert np.array_equal(found, pillow(lambda image: twin(image).enhance(factor), image)), image.shape


@pytest.mark.parametrize("added", [0, 33, 110])
def test_solarize_add_is_the_table_of_timm(added):
    levels = np.arange(256)
    table = np.where(levels < 128, np.minimum(255, levels + added), levels).astype(np.uint8)
    for image in images():
        assert np.array_equal(run_operation(("solarize_add", (1, *constant(added))), image), table[image])


@pytest.mark.parametrize("quality", [1, 50, 75, 95, 100])
def test_jpeg_is_a_file_of_pillow_read_again(quality):
    def through_file(image):
        file = io.BytesIO()
        image.save(file, "jpeg", quality=quality)
        return Image.open(file)

    for image in images():
        assert np.array_equal(run([JPEG(quality)], image), pillow(through_file, image)), image.shape


def levels_of(image):
    """Levels as numbers from 0 up, and how many there are."""
    limits = np.iinfo(image.dtype)
    return image.astype(np.int64) - limits.min, int(limits.max) - int(limits.min) + 1


def stretched(plane, size):
    low, high = plane.min(), plane.max()
    scale = (size - 1) / max(1, high - low)
    made = np.trunc(plane * scale + -low * scale).clip(0, size - 1) if high > low else plane
    return made.astype(np.int64)


def equalized(plane, size):
    counts = np.bincount(plane.ravel(), minlength=size)
    spread = int(plane.size - counts[plane.max()])
    if spread == 0:
        return plane
    below_each = np.cumsum(counts) - counts
    table = np.minimum(size - 1, (spread // 2 + (size - 1) * below_each) // spread)
    return table[plane]


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_images_of_16_bits_follow_the_same_formulas(dtype, channels):
    rng = np.random.default_rng(1)
    for height, width in SIZES:
        image = noise(rng, height, width, channels, dtype) // 3
        levels, size = levels_of(image)
        least = np.iinfo(dtype).min
        by_channel = {AutoContrast(1): stretched, Equalize(1): equalized}
        for transform, function in by_channel.items():
            planes = [function(levels[..., c], size) for c in range(channels)]
            assert np.array_equal(run([transform], image), np.stack(planes, -1) + least)
        assert np.array_equal(run([Invert(1)], image), size - 1 - levels + least)
        assert np.array_equal(run([Posterize(5, 1)], image), (levels >> 11 << 11) + least)
        solarized = np.where(image < 4000, levels, size - 1 - levels) + least
        assert np.array_equal(run([Solarize(4000, 1)], image), solarized)


@pytest.mark.parametrize("transform", [AutoContrast(1), Equalize(1), Invert(1), Solarize(9, 1), AdjustSharpness(2, 1)])
def test_alpha_is_kept(transform):
    image = noise(np.random.default_rng(2), 20, 30, 4, "uint8")
    found = run([transform], image)

    assert np.array_equal(found[..., 3], image[..., 3])
    assert np.array_equal(found[..., :3], run([transform], np.ascontiguousarray(image[..., :3])))


def blurred(image, size, sigma):
    """Torchvision's formula in float64, mirrored at the outermost pixels."""
    made = image.astype(np.float64)
    for axis, side in enumerate(size):
        x = np.arange(side) - (side - 1) / 2
        kernel = np.exp(-0.5 * (x / sigma) ** 2)
        kernel /= kernel.sum()
        padding = [(0, 0)] * 3
        padding[axis] = (side // 2, side // 2)
        mode = "reflect" if made.shape[axis] > 1 else "edge"
        padded = np.pad(made, padding, mode)
        made = sum(weight * np.take(padded, range(k, k + image.shape[axis]), axis) for k, weight in enumerate(kernel))
    return made


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
@pytest.mark.parametrize(
    ("size", "sigma"), [((3, 3), 0.5), ((23, 23), 2.0), ((5, 1), 1.3), ((1, 7), 9.0), ((51, 9), 20)]
)
def test_a_blur_is_the_weighted_sum(dtype, size, sigma):
    rng = np.random.default_rng(3)
    for height, width in SIZES:
        for channels in (1, 3, 7):
            image = noise(rng, height, width, channels, dtype)
            found = run([GaussianBlur(size, sigma)], image)
            assert np.abs(found - blurred(image, size, sigma)).max() <= 1


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
def test_noise_has_the_given_mean_and_deviation(dtype):
    limits = np.iinfo(dtype)
    image = np.full((200, 300, 3), (int(limits.max) + limits.min) // 2, dtype)
    found = run([GaussianNoise(0.05, 0.02)], image).astype(np.float64) - image
    scale = 255 if dtype == "uint8" else 65535 if dtype == "uint16" else 32768

    assert abs(found.mean() / scale - 0.05) < 0.0005
    assert abs(found.std() / scale - 0.02) < 0.0005
    assert np.abs(np.corrcoef(found[..., 0].ravel(), found[..., 1].ravel())[0, 1]) < 0.02
    again = run([GaussianNoise(0.05, 0.02)], image)
    assert np.array_equal(found, again.astype(np.float64) - image)
    assert not np.array_equal(again, run([GaussianNoise(0.05, 0.02)], image, seed=3, epoch=1, sample=8))


def test_noise_stays_in_the_range():
    for dtype in ("uint8", "uint16", "int16"):
        image = noise(np.random.default_rng(4), 30, 40, 4, dtype)
        found = run([GaussianNoise(0, 10)], image)
        assert {np.iinfo(dtype).min, np.iinfo(dtype).max} <= set(found[..., :3].ravel().tolist())
        assert np.array_equal(found[..., 3], image[..., 3])


@pytest.mark.parametrize("transform", [GaussianNoise(0, 0.3), JPEG(20)])
def test_what_has_a_direction_sees_the_mirrored_image(transform):
    """A flip before it is the same as a flip of its input."""
    image = noise(np.random.default_rng(4), 21, 19, 3, "uint8")
    mirrored = np.ascontiguousarray(image[:, ::-1])
    first = compile([HorizontalFlip(1), transform], layout="HWC").image.apply(image, **KEY)

    assert np.array_equal(first, compile([HorizontalFlip(0), transform], layout="HWC").image.apply(mirrored, **KEY))


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 8])
def test_channels_are_permuted_as_drawn(channels):
    image = noise(np.random.default_rng(4), 5, 6, channels, "uint8")
    acting = 3 if channels == 4 else channels
    for sample in range(20):
        order = list(range(channels))
        for k in range(acting - 1):
            word = Key(seed=1, sample=sample).words(0, k // 4)[k % 4]
            j = k + below(word, acting - k)
            order[k], order[j] = order[j], order[k]
        found = run([RandomChannelPermutation()], image, seed=1, epoch=0, sample=sample)
        assert np.array_equal(found, image[..., order])
