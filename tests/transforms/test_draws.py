# SPDX-License-Identifier: Apache-2.0
"""Every random choice is the one that spec/recipe.md says it is."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from tests.transforms.philox import WORD, Key, below, philox, uniform, unit
from tests.transforms.samples import any_key

from headrace.transforms import (
    ColorJitter,
    Grayscale,
    HorizontalFlip,
    RandomCrop,
    RandomResizedCrop,
    VerticalFlip,
    Views,
    compile,  # noqa: A004
)

KEYS = [
    Key(),
    Key(seed=2**64 - 1, epoch=WORD, sample=2**48 - 1, view=2**16 - 1),
    *map(any_key, map(np.random.default_rng, range(60))),
]


def passes_of(transforms, height, width, key):
    return compile(transforms).image.passes(height, width, **key.arguments())


def test_the_oracle_gives_the_published_numbers():
    """Random123's known answers for Philox 4x32-10."""
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)

    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox((WORD,) * 4, (WORD,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox(pi, (0xA4093822, 0x299F31D0)) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_a_crop_lies_where_its_two_numbers_say():
    """The first number gives the top, the second the left; a padding before it is an operation of its own."""
    for key in KEYS:
        (plain,) = passes_of([RandomCrop((30, 40))], 100, 140, key)
        (padded,) = passes_of([HorizontalFlip(0), RandomCrop((300, 400), padding=500)], 100, 140, key)

        first, second = key.words(0), key.words(2)
        assert (plain["rows"]["start"], plain["columns"]["start"]) == (below(first[0], 71), below(first[1], 101))
        shift = 500 - below(second[0], 801), 500 - below(second[1], 741)
        for axis, expected in zip(("rows", "columns"), shift, strict=True):
            seen = padded[axis]
            assert seen["offset"] - seen["start"] == expected or seen["offset"] + seen["size"] <= 0


def expected_window(height, width, key, scale, ratio):
    for attempt in range(10):
        area, shape, top, left = key.words(0, attempt)
        pixels = height * width * uniform(area, *scale)
        proportion = math.exp(uniform(shape, math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(pixels * proportion)), round(math.sqrt(pixels / proportion))
        if 0 < w <= width and 0 < h <= height:
            return below(top, height - h + 1), below(left, width - w + 1), h, w
    w = min(width, round(height * ratio[1])) if width / height > ratio[1] else width
    h = min(height, round(width / ratio[0])) if width / height < ratio[0] else height
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize("size", [(480, 640), (1024, 2048), (7, 5), (1, 1), (20, 3000), (3000, 20)])
@pytest.mark.parametrize(
    ("scale", "ratio"), [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (0.5, 0.6)), ((1, 1), (1, 1))]
)
def test_a_resized_crop_is_the_first_draw_that_fits(size, scale, ratio):
    """Area, ratio, top and left are the four numbers of an attempt; after ten the middle is taken."""
    for key in KEYS:
        (found,) = passes_of([RandomResizedCrop(32, scale, ratio)], *size, key)

        rows, columns = found["rows"], found["columns"]
        window = rows["start"], columns["start"], rows["size"], columns["size"]
        assert window == expected_window(*size, key, scale, ratio)
        assert (rows["resized"], columns["resized"]) == (32, 32)


def test_chances_are_the_first_number_of_an_operation():
    """Flips and greys happen where it is below p, and operations count from 0."""
    for key in KEYS:
        (found,) = passes_of([VerticalFlip(0.3), HorizontalFlip(), Grayscale(p=0.7)], 5, 6, key)

        assert found["rows"]["flipped"] == (unit(key.words(0)[0]) < 0.3)
        assert found["columns"]["flipped"] == (unit(key.words(1)[0]) < 0.5)
        assert found["colors"] == ([("grayscale", 3.0)] if unit(key.words(2)[0]) < 0.7 else [])


def test_chances_of_nought_and_one_are_certain():
    """With p = 0 nothing ever happens, with p = 1 always."""
    for key in KEYS:
        (found,) = passes_of([VerticalFlip(0), HorizontalFlip(1), Grayscale()], 5, 6, key)

        assert (found["rows"]["flipped"], found["columns"]["flipped"]) == (False, True)
        assert found["colors"] == [("grayscale", 1.0)]


def test_jitter_draws_factors_and_then_their_order():
    """Factors come from block 0, the order from block 1, and steps without a range are left out."""
    ranges = {"brightness": (0.6, 1.4), "contrast": (0.2, 0.3), "saturation": (1.0, 3.0), "hue": (-0.1, 0.25)}
    for key in KEYS:
        (full,) = passes_of([ColorJitter(**ranges)], 5, 6, key)
        (some,) = passes_of([ColorJitter(contrast=(0.2, 0.3), hue=(-0.1, 0.25))], 5, 6, key)

        order = list(ranges)
        for k, word in enumerate(key.words(0, 1)[:3]):
            j = k + below(word, 4 - k)
            order[k], order[j] = order[j], order[k]
        factors = dict(zip(ranges, key.words(0), strict=True))
        expected = [(name, uniform(factors[name], *ranges[name])) for name in order]
        assert full["colors"] == expected
        assert some["colors"] == [step for step in expected if step[0] in {"contrast", "hue"}]


def test_every_order_of_jitter_comes():
    """All 24 orders appear about equally often."""
    compiled = compile([ColorJitter(0.4, 0.4, 0.4, 0.1)])
    orders = Counter(
        tuple(name for name, _ in compiled.image.passes(5, 6, seed=1, epoch=0, sample=sample)[0]["colors"])
        for sample in range(4800)
    )

    assert len(orders) == 24
    assert min(orders.values()) > 140
    assert max(orders.values()) < 260


def test_views_draw_for_themselves_and_the_first_as_without():
    """View 0 of `Views` is what the bare list makes; the others differ."""
    views, bare = compile([Views(3, [RandomCrop(50)])]), compile([RandomCrop(50)])
    key = {"seed": 5, "epoch": 1, "sample": 9}
    places = [views.image.passes(900, 900, **key, view=view) for view in range(3)]

    assert views.views == 3
    assert bare.views == 1
    assert places[0] == bare.image.passes(900, 900, **key)
    assert places[0] != places[1] != places[2]


def test_image_and_mask_draw_the_same():
    """A mask goes where its image goes, whatever colours do in between."""
    transforms = [ColorJitter(0.4), HorizontalFlip(), RandomResizedCrop((20, 30)), Grayscale(p=0.5), RandomCrop(10)]
    for key in KEYS:
        compiled = compile(transforms)
        image = compiled.image.passes(100, 120, **key.arguments())
        mask = compiled.mask.passes(100, 120, **key.arguments())

        assert [each["columns"]["canvas"] for each in image][-1] == mask[-1]["columns"]["canvas"] == 10
        assert sum(each["columns"]["flipped"] for each in image) == sum(each["columns"]["flipped"] for each in mask)
        assert starts(image) == starts(mask)


def starts(passes):
    return sum(each["rows"]["start"] for each in passes), sum(each["rows"]["offset"] for each in passes)
