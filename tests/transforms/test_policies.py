# SPDX-License-Identifier: Apache-2.0
"""Policies are the operations, magnitudes and probabilities that torchvision and timm document."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats
from tests.transforms.philox import Key, uniform, unit
from tests.transforms.samples import noise

from headrace import _core
from headrace.transforms import (
    AugMix,
    AutoAugment,
    RandAugment,
    TimmAugment,
    TrivialAugmentWide,
    compile,  # noqa: A004
)
from headrace.transforms.policies._learned import sub_policies
from headrace.transforms.policies._steps import MOVEMENTS

PLAIN = {"autocontrast": "AutoContrast", "equalize": "Equalize", "invert": "Invert"}
ENHANCED = ("Brightness", "Contrast", "Color", "Sharpness")


def bodies(operations):
    """The bodies of the branches of the choice that comes first, with their weights, and what is behind it."""
    (kind, (length,)), rest = operations[0], operations[1:]
    assert kind == "choice"
    inside, behind = rest[:length], rest[length:]
    found = []
    while inside:
        (branch, (weight, count)), inside = inside[0], inside[1:]
        assert branch == "branch"
        found.append((weight, inside[:count]))
        inside = inside[count:]
    return found, behind


def steps(operations):
    """(name, probability, smallest and greatest value without sign, signed) of each operation of a body."""
    found = []
    p = 1.0
    for kind, parameters in operations:
        if kind == "apply":
            assert parameters[1] == 1
            p = parameters[0]
            continue
        if kind in PLAIN:
            found.append((PLAIN[kind], parameters[0], None, False))
            continue
        if kind == "affine_level":
            name, chance, base, level = MOVEMENTS[int(parameters[0])], p, 0.0, parameters[1:9]
        elif kind == "enhance":
            name, chance, base, level = ENHANCED[parameters[1]], parameters[0], parameters[2], parameters[4:12]
        else:
            at = 1 if kind == "solarize_add" else 2
            name = {"posterize": "Posterize", "solarize": "Solarize", "solarize_add": "SolarizeAdd"}[kind]
            chance, base, level = parameters[0], 0.0, parameters[at : at + 8]
        _, low, high, least, most, sign, offset, step = level
        ends = tuple(offset + step * min(max(end, least), most) for end in (low, high))
        if kind == "posterize":
            ends = tuple(math.ceil(end) if parameters[1] else math.floor(end) for end in ends)
        if kind == "enhance" and base != 1:
            ends = tuple(base + end for end in ends)
        found.append((name, chance, ends, bool(sign)))
        p = 1.0
    return found


def test_rand_augment_has_torchvisions_magnitudes():
    """Magnitude 9 of 31, as torch.linspace gives it, and two independent choices."""
    first, behind = bodies(RandAugment(interpolation="bilinear", fill=(1, 2, 3)).operations())
    second, nothing = bodies(behind)

    assert first == second
    assert not nothing
    assert len(first) == 14
    assert {weight for weight, _ in first} == {1.0}
    values = {name: (ends[0], signed) if ends else None for _, body in first for name, _, ends, signed in steps(body)}
    share = 9 / 30
    assert values == {
        **{name: (pytest.approx(0.3 * share), True) for name in ("ShearX", "ShearY")},
        **{name: (pytest.approx(150 / 331 * share), True) for name in ("TranslateX", "TranslateY")},
        "Rotate": (pytest.approx(30 * share), True),
        **{name: (pytest.approx(0.9 * share), True) for name in ENHANCED},
        "Posterize": (7, False),
        "Solarize": (pytest.approx(255 * (1 - share)), False),
        "AutoContrast": None,
        "Equalize": None,
    }


@pytest.mark.parametrize(("bins", "dropped", "make"), [(31, 4, RandAugment), (11, 4, RandAugment)])
def test_posterize_rounds_as_torchvision(bins, dropped, make):
    for magnitude in range(bins):
        found, _ = bodies(make(magnitude=magnitude, num_magnitude_bins=bins).operations())
        ((_, _, ends, _),) = [step for _, body in found for step in steps(body) if step[0] == "Posterize"]
        assert ends[0] == 8 - round(magnitude / ((bins - 1) / dropped))


def test_trivial_augment_draws_all_magnitudes():
    found, nothing = bodies(TrivialAugmentWide().operations())

    assert not nothing
    values = {name: ends for _, body in found for name, _, ends, _ in steps(body)}
    assert values["ShearX"] == (0, pytest.approx(0.99))
    assert values["TranslateYPixels"] == (0, pytest.approx(32))
    assert values["Rotate"] == (0, pytest.approx(135))
    assert values["Color"] == (0, pytest.approx(0.99))
    assert values["Posterize"] == (8, 2)
    assert values["Solarize"] == (255, pytest.approx(0))


@pytest.mark.parametrize(
    ("policy", "counts"),
    [
        ("imagenet", {"Equalize": 17, "Posterize": 5, "Rotate": 6, "Solarize": 7, "Color": 6, "Invert": 3}),
        ("cifar10", {"Equalize": 9, "TranslateY": 5, "AutoContrast": 7, "Sharpness": 5, "Brightness": 4}),
        ("svhn", {"Invert": 12, "ShearY": 8, "ShearX": 6, "Equalize": 6, "Solarize": 5}),
    ],
)
def test_auto_augment_has_25_sub_policies_of_two(policy, counts):
    found, nothing = bodies(AutoAugment(policy).operations())
    table = sub_policies(policy)

    assert not nothing
    assert len(found) == len(table) == 25
    seen = Counter(name for pair in table for name, _, _ in pair)
    assert {name: seen[name] for name in counts} == counts
    for (weight, body), pair in zip(found, table, strict=True):
        assert weight == 1
        assert [(name, p) for name, p, _, _ in steps(body)] == [(name, p) for name, p, _ in pair]


def test_timm_strings_are_read():
    """Defaults, and each section."""
    plain, _ = bodies(TimmAugment("rand").operations())
    deit, behind = bodies(TimmAugment("rand-m9-n3-p0.7-mstd0.5-inc1").operations())
    uniform_, _ = bodies(TimmAugment("rand-m8-mstd101-mmax20").operations())

    assert len(plain) == len(deit) == 15
    assert len(bodies(bodies(behind)[1])[0]) == 15
    assert {p for _, body in deit for _, p, _, _ in steps(body)} == {0.7}
    assert {p for _, body in plain for _, p, _, _ in steps(body)} == {0.5}
    rotate = deit[3][1][-1][1]
    assert rotate[1:6] == (1, 9.0, 0.5, 0, 10.0)
    assert uniform_[3][1][-1][1][1:6] == (0, 0, 8.0, 0, 20.0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "must begin with rand"),
        ("augment-m9", "must begin with rand"),
        ("rand-x5", "'x5' in 'rand-x5' must be one of -m, -n, -p, -mstd, -mmax, -inc"),
        ("rand-m", "must be one of"),
        ("rand-tweights", "must be one of"),
        ("rand-n16", r"n must be in \[1, 15\]"),
        ("rand-p2", "p must be in"),
        ("original-m9", "must be one of -mstd"),
    ],
)
def test_wrong_strings_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        TimmAugment(config)


def timms_policies():
    """Timm's module of policies alone: the package needs torchvision."""
    package = importlib.util.find_spec("timm")
    if package is None:
        pytest.skip("timm is not installed")
    path = Path(package.submodule_search_locations[0]) / "data" / "auto_augment.py"
    spec = importlib.util.spec_from_file_location("timms_policies", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_levels_are_timms():
    """Every operation at every whole magnitude, by timm's own functions."""
    timm = timms_policies()
    hparams = {"translate_pct": 0.45}
    for increasing in (0, 1):
        names = timm._RAND_INCREASING_TRANSFORMS if increasing else timm._RAND_TRANSFORMS
        for magnitude in range(11):
            found, _ = bodies(TimmAugment(f"rand-m{magnitude}-inc{increasing}").operations())
            for (_, body), name in zip(found, names, strict=True):
                ((ours, p, ends, signed),) = steps(body)
                assert name.startswith(ours)
                assert p == 0.5
                if timm.LEVEL_TO_ARG[name] is None:
                    assert ends is None
                    continue
                values = {timm.LEVEL_TO_ARG[name](magnitude, hparams)[0] for _ in range(40)}
                if signed and "Increasing" in name:
                    values = {value - 1 for value in values}
                if name == "Solarize":
                    ends = tuple(map(math.floor, ends))
                if name == "SolarizeIncreasing":
                    ends = tuple(map(math.ceil, ends))
                if name == "SolarizeAdd":
                    ends = tuple(map(math.floor, ends))
                expected = {ends[0], -ends[0]} if signed else {ends[0]}
                assert sorted(values) == pytest.approx(sorted(expected)), (name, magnitude)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("original", 25), ("originalr", 25), ("v0", 25), ("v0r", 25)])
def test_auto_augment_strings_have_timms_tables(kind, count):
    timm = timms_policies()
    found, _ = bodies(TimmAugment(kind).operations())
    policy = timm.auto_augment_policy(kind)

    assert len(found) == len(policy) == count
    for (_, body), pair in zip(found, policy, strict=True):
        for (name, p, ends, signed), theirs in zip(steps(body), pair, strict=True):
            assert theirs.name.startswith(name)
            assert p == theirs.prob
            if ends is None:
                continue
            value = abs(timm.LEVEL_TO_ARG[theirs.name](theirs.magnitude, {"translate_pct": 0.45})[0])
            ours = math.floor(ends[0]) if name.startswith("Solarize") else ends[0]
            assert value == pytest.approx(ours), theirs
            assert signed == (name in MOVEMENTS)


def test_levels_are_drawn_as_the_spec_says():
    """Block 0 decides whether, block 1 how much."""
    brightness = ("enhance", (0.4, 0, 1, 0, 0, -3, 5, -2, 4, 1, 0.25, 0.5))
    transform = _core.Transform([brightness], layout="HWC", color="keep", dtype=None, mean=None, std=None, mask=False)
    for sample in range(60):
        key = Key(seed=3, sample=sample)
        (only,) = transform.passes(4, 4, **key.arguments())
        if unit(key.words(0)[0]) >= 0.4:
            assert not only["colors"]
            continue
        words = key.words(0, 1)
        level = 0.25 + 0.5 * min(max(uniform(words[0], -3, 5), -2), 4)
        factor = max(0, 1 + (-level if unit(words[2]) < 0.5 else level))
        assert only["colors"] == [("enhance_brightness", pytest.approx(factor))]


def done_by_pillow(image, passes):
    """Carry out the drawn passes of a policy with Pillow alone."""
    picture = Image.fromarray(image)
    for each in passes:
        if each["warp"]:
            warp = each["warp"]
            fill = tuple(warp["fill"])
            picture = picture.transform(picture.size, Image.Transform.AFFINE, warp["map"][:6], fillcolor=fill)
        for name, value in each["colors"]:
            picture = PILLOW[name](picture, value)
    return np.asarray(picture)


PILLOW = {
    "invert": lambda image, _: ImageOps.invert(image),
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)) if bits >= 1 else image.point([0] * 768),
    "solarize": ImageOps.solarize,
    "solarize_add": lambda image, added: image.point(
        [min(255, i + int(added)) if i < 128 else i for i in range(256)] * 3
    ),
    "enhance_brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "enhance_contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "enhance_saturation": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "enhance_sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
}


@pytest.mark.parametrize(
    "transform",
    [
        AutoAugment("imagenet"),
        AutoAugment("cifar10", fill=7),
        AutoAugment("svhn"),
        RandAugment(3, fill=(1, 200, 30)),
        TrivialAugmentWide(),
        TimmAugment("rand-m9-mstd0.5-inc1", interpolation="nearest"),
        TimmAugment("rand-m5-n4-mstd101", interpolation="nearest"),
        TimmAugment("v0", interpolation="nearest"),
    ],
    ids=repr,
)
def test_policies_are_pillows_functions_one_after_another(transform):
    """Exactly, with the draws that were made. Two movements in a row are one resampling here; test_warp has those."""
    rng = np.random.default_rng(0)
    compiled = compile([transform], layout="HWC")
    seen, compared = set(), 0
    for sample in range(150):
        image = (noise(rng, 37, 41, 3, "uint8") // (1 + sample % 3)).astype(np.uint8)
        key = Key(seed=9, sample=sample)
        passes = compiled.image.passes(37, 41, **key.arguments())
        if any(each["warp"] and each["warp"]["gates"] for each in passes):
            continue
        compared += 1
        seen |= {name for each in passes for name, _ in each["colors"]} | {"warp" for each in passes if each["warp"]}
        assert np.array_equal(compiled.image.apply(image, **key.arguments()), done_by_pillow(image, passes)), passes
    assert compared > 75
    assert len(seen) >= 6


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_aug_mix_stays_between_what_it_mixes(interpolation):
    """A flat image stays flat where no fill is mixed in, and every list of draws fits into the passes there are."""
    compiled = compile([AugMix(10, 4, 3, interpolation=interpolation, fill=90)], layout="HWC")
    wide = compile([AugMix(10, 14, 1, all_ops=False), AugMix(all_ops=False)], layout="HWC")
    image = np.full((30, 40, 3), 90, np.uint8)
    for sample in range(60):
        found = compiled.image.apply(image, **Key(sample=sample).arguments())
        assert found.shape == image.shape
        assert compiled.image.apply(image, **Key(sample=sample).arguments()).tolist() == found.tolist()
        with pytest.raises(ValueError, match="more than 16 passes"):
            wide.image.apply(image, **Key(sample=sample).arguments())


def test_masks_move_with_policies():
    """The same movement, nearest, with 0 outside."""
    compiled = compile([TrivialAugmentWide(fill=255)], layout="HWC", color="keep")
    image = np.arange(30 * 40, dtype=np.uint16).reshape(30, 40, 1) % 250 + 1
    moved_samples = 0
    for sample in range(60):
        key = Key(seed=2, sample=sample).arguments()
        passes = compiled.image.passes(30, 40, **key)
        mask = compiled.mask.apply(image[..., 0], **key)
        if passes[0]["warp"]:
            found = compiled.image.apply(image, **key)[..., 0]
            assert np.array_equal(np.where(found == 255, 0, found), mask)
            moved_samples += 1
        else:
            assert np.array_equal(mask, image[..., 0])
    assert moved_samples > 10


@pytest.mark.slow
def test_draws_of_policies_follow_their_distributions():
    """Chi-square for the chosen operations; Kolmogorov-Smirnov for timm's normal magnitudes and the signs."""
    rand, timm = compile([RandAugment(1)]), compile([TimmAugment("rand-m9-n1-p1-mstd0.5-inc1")])
    chosen, magnitudes, signs = Counter(), [], []
    n = 30000
    for sample in range(n):
        (only,) = rand.image.passes(8, 8, **Key(seed=4, sample=sample).arguments())
        chosen["warp" if only["warp"] else only["colors"][0][0] if only["colors"] else "identity"] += 1
        (only,) = timm.image.passes(8, 8, **Key(seed=5, sample=sample).arguments())
        for name, factor in only["colors"]:
            if name.startswith("enhance"):
                magnitudes.append(abs(factor - 1) / 0.09)
                signs.append(factor > 1)
    expected = {name: n / 14 * (5 if name == "warp" else 1) for name in chosen}
    unclamped = [m for m in magnitudes if m < 9.999]

    assert len(chosen) == 10
    assert stats.chisquare(list(chosen.values()), list(expected.values())).pvalue > 1e-4
    assert stats.kstest(unclamped, stats.truncnorm(-math.inf, 2, 9, 0.5).cdf).pvalue > 1e-4
    assert stats.binomtest(sum(signs), len(signs), 0.5).pvalue > 1e-4
    assert abs(1 - len(unclamped) / len(magnitudes) - stats.norm.sf(2)) < 0.01
