# SPDX-License-Identifier: Apache-2.0
"""Elastic deformations have the pixels of the recipe's formula and the distribution of torchvision's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transforms.elastic_reference import deformed, displacement, nodes, torchvisions
from tests.transforms.samples import any_key, noise

import headrace
from headrace.records import Boxes
from headrace.transforms import (
    CenterCrop,
    ElasticTransform,
    HorizontalFlip,
    Pad,
    RandomAffine,
    RandomPerspective,
    RandomRotation,
    Resize,
    compile,  # noqa: A004
)
from headrace.transforms.elastic.deformation import Deformation
from headrace.transforms.points import move_points, move_polygons

SEEDS = st.integers(0, 2**32 - 1)
INTERPOLATIONS = ("nearest", "bilinear", "bicubic")


def compiled_for(*transforms):
    return compile(list(transforms), layout="HWC", color="keep")


def any_elastic(rng, interpolation="bilinear", alpha=60):
    sigma = tuple(rng.uniform(1, 12, 2).tolist())
    strength = tuple((rng.uniform(0, alpha, 2) * np.array(sigma) / 6).tolist())
    return ElasticTransform(strength, sigma, interpolation, fill=7, mask_fill=9)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_nodes_are_those_of_the_recipe(seed):
    """Smoothed numbers of the operation's stream, of any size and strength."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 60, 2).tolist()
    elastic, key = any_elastic(rng), any_key(rng)

    (only,) = compiled_for(HorizontalFlip(0), elastic).image.passes(height, width, **key.arguments())

    expected = nodes(height, width, elastic.alpha, elastic.sigma, key, operation=1)
    assert np.allclose(only["warp"]["elastic"]["nodes"], expected, rtol=0, atol=2e-6 * (1 + np.abs(expected).max()))


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from(INTERPOLATIONS), st.integers(1, 9))
def test_every_dtype_and_channel_count_is_as_the_reference(seed, interpolation, channels):
    """Nearest exactly; bilinear and bicubic within one level of 8 bits, or 8 of 16."""
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(["uint8", "uint16", "int16"]))
    image, key = noise(rng, *rng.integers(1, 60, 2).tolist(), channels, dtype), any_key(rng)
    elastic = any_elastic(rng, interpolation)
    coefficients = nodes(*image.shape[:2], elastic.alpha, elastic.sigma, key)

    found = compiled_for(elastic).image.apply(image, **key.arguments())

    expected = deformed(image, coefficients, elastic.sigma, interpolation, fill=7)
    off = np.nan_to_num(np.abs(found - expected))
    assert off.max() <= (0 if interpolation == "nearest" else 1 if dtype == "uint8" else 8)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
@pytest.mark.parametrize("alpha", [50, 400])
def test_pixels_are_scipys(dtype, alpha):
    """What `map_coordinates` finds at the displaced places, within one level of 8 bits, where there is no fill."""
    ndimage = pytest.importorskip("scipy.ndimage")
    image = noise(np.random.default_rng(0), 64, 80, 2, dtype)
    compiled, key = compiled_for(ElasticTransform(alpha)).image, {"seed": 5, "epoch": 0, "sample": 9}
    (only,) = compiled.passes(64, 80, **key)
    y, x = np.mgrid[:64, :80] + 0.5
    across, down = displacement(np.asarray(only["warp"]["elastic"]["nodes"]), (5.0, 5.0), x, y)

    found = compiled.apply(image, **key)

    places = y + down - 0.5, x + across - 0.5
    planes = [
        ndimage.map_coordinates(image[..., c].astype(np.float64), places, order=1, mode="nearest") for c in (0, 1)
    ]
    inside = (x + across >= 0) & (x + across < 80) & (y + down >= 0) & (y + down < 64)
    assert inside.mean() > 0.8
    assert np.abs(found - np.stack(planes, axis=-1))[inside].max() <= (1 if dtype == "uint8" else 8)


def test_without_strength_nothing_changes():
    image = noise(np.random.default_rng(0), 30, 40, 3, "uint8")

    assert np.array_equal(ElasticTransform(0)(image), image)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "alpha", "size"), [(5.0, 50.0, (96, 96)), (2.0, 20.0, (60, 90)), (9.7, 300, (90, 70))]
)
def test_displacements_are_distributed_as_torchvisions(sigma, alpha, size):
    """Deviation of each pixel, correlation of neighbors, and chi-square of 20 bins over far pixels of many draws."""
    rng = np.random.default_rng(0)
    height, width = size
    y, x = np.mgrid[:height, :width] + 0.5
    compiled = compiled_for(ElasticTransform(alpha, sigma)).image
    found, expected = [], []
    for sample in range(400):
        (only,) = compiled.passes(height, width, seed=1, epoch=0, sample=sample)
        found.append(displacement(np.asarray(only["warp"]["elastic"]["nodes"]), (sigma, sigma), x, y))
        expected.append(torchvisions(rng, height, width, alpha, sigma))
    found, expected = np.array(found), np.array(expected)  # [samples, 2, H, W]

    assert np.allclose(found.std(axis=(0, 2, 3)), expected.std(axis=(0, 2, 3)), rtol=0.02)
    deviation = found.std(axis=(0, 3))  # alike in all rows
    assert (deviation.max(axis=1) / deviation.min(axis=1) < 1.25).all()
    shift = round(sigma)
    for axis in (2, 3):
        correlations = [_correlation(each, shift, axis) for each in (found, expected)]
        assert abs(correlations[0] - correlations[1]) < 0.02
    far = slice(None, None, int(4 * sigma))
    # Quantiles of torchvision's distribution; pixels four deviations apart have a correlation below 0.02.
    for k in (0, 1):
        values = found[:, k, far, far].ravel()
        edges = np.quantile(expected[:, k], np.linspace(0, 1, 21))[1:-1]
        counts = np.bincount(np.searchsorted(edges, values), minlength=20)
        assert ((counts - len(values) / 20) ** 2 / (len(values) / 20)).sum() < 63  # passed once in 10^6


def _correlation(fields, shift, axis):
    first, second = (np.take(fields, range(k, fields.shape[axis] - shift + k), axis) for k in (0, shift))
    return (first * second).mean() / (fields**2).mean()


@pytest.mark.parametrize("target", headrace.codec.targets())
def test_targets_make_the_same_pixels(target):
    """Bit for bit, also where the deformation is turned and reduced."""
    rng = np.random.default_rng(0)
    before = headrace.codec.active_target()
    for k in range(60):
        elastic, image = any_elastic(rng, INTERPOLATIONS[k % 3]), noise(rng, 50, 61, 1 + k % 5, "uint16")
        others = [[], [RandomRotation(30, fill=7)], [Resize((23, 31), antialias=False)], [CenterCrop(40)]]
        compiled, key = compiled_for(elastic, *others[k % 4]).image, any_key(rng).arguments()
        try:
            headrace.codec.use_target("scalar")
            expected = compiled.apply(image, **key)
            headrace.codec.use_target(target)
            assert np.array_equal(compiled.apply(image, **key), expected)
        finally:
            headrace.codec.use_target(before)


@pytest.mark.parametrize(
    ("transforms", "n_passes"),
    [
        ([RandomRotation(20), ElasticTransform(), CenterCrop(30), HorizontalFlip(1)], 1),
        ([CenterCrop(40), HorizontalFlip(1), ElasticTransform(), RandomAffine(9), Resize(33)], 1),
        ([Pad(4, fill=0), ElasticTransform(), Pad(3)], 1),
        ([ElasticTransform(), ElasticTransform()], 2),
        ([ElasticTransform(), RandomPerspective(0.2, 1)], 2),
        ([RandomPerspective(0.2, 1), ElasticTransform()], 2),
        ([ElasticTransform(fill=3), RandomRotation(20)], 2),
    ],
)
def test_what_is_one_resampling(transforms, n_passes):
    """Warps, crops, flips, pads and resizes around one deformation are; a second one and perspectives are not."""
    key = {"seed": 3, "epoch": 1, "sample": 7}

    assert len(compiled_for(*transforms).image.passes(50, 60, **key)) == n_passes


def grown(mask, pixels):
    padded = np.pad(mask, pixels, constant_values=True)
    return np.lib.stride_tricks.sliding_window_view(padded, (2 * pixels + 1, 2 * pixels + 1)).any(axis=(2, 3))


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_composition_shows_the_same_places_as_its_parts(seed):
    """A ramp, which resampling keeps: apart from the edges, one resampling gives what several give."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:60, :70]
    image = np.stack([8000 + 64 * x, 8000 + 64 * y], axis=-1).astype(np.uint16)
    angle = float(rng.uniform(-40, 40))
    elastic = ElasticTransform(25, tuple(rng.uniform(4, 7, 2).tolist()), "bilinear")
    parts = [RandomRotation((angle, angle), "bilinear"), elastic, HorizontalFlip(1), CenterCrop((50, 48))]
    parts = [parts[k] for k in rng.permutation(4)]
    place = next(k for k, part in enumerate(parts) if part is elastic)
    key = any_key(rng).arguments()

    together = compiled_for(*parts).image.apply(image, **key)

    for k, part in enumerate(parts):  # with the number that its draws have in the list
        image = compiled_for(*[HorizontalFlip(0)] * (place if k == place else 0), part).image.apply(image, **key)
    filled, other = (together == 0).all(axis=-1), (image < 7900).any(axis=-1)
    inside = ~grown(filled | other, 3)
    assert np.abs(together.astype(int) - image)[inside].max(initial=0) <= 16  # a quarter of a pixel
    assert not (~grown(filled, 3) & (image == 0).all(axis=-1)).any()
    assert not (~grown(other, 3) & filled).any()


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_points_go_where_their_pixels_go(seed):
    """The place that shows what was at the point, to a hundredth of a pixel, where nothing is folded."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(20, 90, 2).tolist()
    sigma = tuple(rng.uniform(3, 9, 2).tolist())
    elastic = ElasticTransform(float(min(sigma) ** 2), sigma)
    (only,) = compiled_for(elastic).image.passes(height, width, **any_key(rng).arguments())
    coefficients = np.asarray(only["warp"]["elastic"]["nodes"], np.float64)
    places = rng.uniform(0, 1, (50, 2)) * (width, height)
    shift = np.stack(displacement(coefficients, sigma, *places.T), axis=-1)
    inside = ((places + shift > 0) & (places + shift < (width, height))).all(axis=1)

    moved, visible = move_points((places + shift)[inside], [only])

    assert np.abs(moved - places[inside]).max(initial=0) < 0.05
    assert visible[np.abs(moved - (width / 2, height / 2)).max(axis=1) < min(width, height) / 2 - 1].all()


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_masks_boxes_and_polygons_move_alike(seed):
    """Within a pixel of the image that was resampled once."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((80, 90), np.uint8)
    y, x = np.sort(rng.integers(8, 60, 2)), np.sort(rng.integers(8, 70, 2))
    y[1], x[1] = y[1] + 10, x[1] + 10
    mask[y[0] : y[1], x[0] : x[1]] = 1
    compiled = compiled_for(RandomRotation(20), ElasticTransform(60, 6.0), HorizontalFlip())
    key = any_key(rng).arguments()
    rows, columns = np.nonzero(compiled.mask.apply(mask, **key))
    boxes = Boxes(np.array([[x[0], y[0], x[1], y[1]]], np.float32), np.array([1]))

    (found,) = compiled.boxes_kept(boxes, 80, 90, **key)[0].xyxy
    outline = np.array([[[x[0], y[0]], [x[1], y[0]], [x[1], y[1]], [x[0], y[1]]]], np.float64)
    (polygon,), _ = move_polygons(outline, compiled.image.passes(80, 90, **key))

    around = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert np.abs(found - around).max() <= 1
    assert np.abs([*polygon.min(axis=0), *polygon.max(axis=0)] - found).max() < 1e-3


def test_points_of_a_folded_image_stay_finite():
    """However strong the deformation is, and for points that are nowhere."""
    compiled = compiled_for(ElasticTransform(5000, 2.0))
    (only,) = compiled.image.passes(40, 50, seed=1, epoch=0, sample=0)
    points = np.array([[25, 20], [-1e9, 1e9], [np.nan, 3]])

    found = Deformation(only["warp"]["elastic"]).undo(points)

    assert np.isfinite(found[:2]).all()
    assert np.isnan(found[2, 0])


def test_a_field_has_a_limit():
    """An image of 10 megapixels with the finest nodes is refused, with what to do about it; sigma 5 is not."""
    key = {"seed": 3, "epoch": 1, "sample": 7}

    with pytest.raises(ValueError, match="crop or resize it first, or raise sigma"):
        compiled_for(ElasticTransform(5, 1.0)).image.passes(3000, 4000, **key)
    assert len(compiled_for(ElasticTransform()).image.passes(3000, 4000, **key)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -1}, "alpha must be in"),
        ({"sigma": 0.5}, "sigma must be in"),
        ({"sigma": (1, 2, 3)}, "a number or \\(across, down\\)"),
        ({"interpolation": "area"}, "interpolation must be one of"),
        ({"fill": 0.5}, "fill must be whole levels"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        ElasticTransform(**arguments)
