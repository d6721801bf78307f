# SPDX-License-Identifier: Apache-2.0
"""Transforms and recipes come back from JSON as they went, and nothing else is taken for them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace.transforms import (
    JPEG,
    AdjustSharpness,
    AugMix,
    AutoAugment,
    AutoContrast,
    CenterCrop,
    ColorJitter,
    CutMix,
    ElasticTransform,
    Equalize,
    GaussianBlur,
    GaussianNoise,
    Grayscale,
    HorizontalFlip,
    Invert,
    Letterbox,
    MixUp,
    MixUpCutMix,
    MultiCrop,
    Normalize,
    OneOf,
    Pad,
    PerBatch,
    PerSample,
    Posterize,
    RandAugment,
    RandomAffine,
    RandomApply,
    RandomChannelPermutation,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomOrder,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomShortestSize,
    RandomZoomOut,
    Recipe,
    Resize,
    ScaleJitter,
    Solarize,
    TimmAugment,
    TrivialAugmentWide,
    VerticalFlip,
    View,
    Views,
    compile,  # noqa: A004
    from_json,
)

SPEC = Path(__file__).parents[2] / "spec" / "recipe.md"

ALL = [
    Resize(256),
    Resize((3, 4), "area", antialias=False),
    CenterCrop((5, 6)),
    RandomCrop(32, padding=4, pad_if_needed=True, fill=1.5, padding_mode="reflect"),
    RandomCrop(32),
    RandomResizedCrop(224, (0.1, 0.2), (0.3, 3), "nearest", antialias=False),
    HorizontalFlip(),
    VerticalFlip(0.1),
    Pad((1, 2, 3, 4), 5, "edge"),
    ColorJitter(0.4, (0.2, 0.9), 0, 0.1),
    Grayscale(p=0.2),
    Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    RandomApply([HorizontalFlip(), Pad(3)], 0.3),
    RandomChoice([HorizontalFlip(), Pad(3)], [1, 2.5]),
    OneOf([RandomOrder([Pad(3), CenterCrop(9)]), Invert(0.3)]),
    RandomOrder([VerticalFlip()]),
    Invert(),
    Posterize(3),
    Solarize(128.5, p=1),
    AutoContrast(),
    Equalize(0.1),
    AdjustSharpness(0.5),
    GaussianBlur(23, 0.5),
    GaussianBlur((3, 5), (1, 3)),
    GaussianNoise(sigma=0.3),
    RandomChannelPermutation(),
    JPEG((30, 90)),
    AutoAugment("svhn", "bilinear", (1, 2, 3)),
    RandAugment(3, 5, 11, fill=128),
    TrivialAugmentWide(),
    TimmAugment("rand-m9-mstd0.5-inc1"),
    AugMix(5, 2, 4, 0.5, all_ops=False),
    Views(2, [RandomCrop(5), Normalize(0.5, 0.5)]),
    RandomErasing(0.25, (0.1, 0.2), (0.5, 2), (1.0, 2.0), (1, 3)),
    RandomErasing(value="random"),
    MixUp(0.2, 1000),
    CutMix(labels="kind"),
    MixUpCutMix(0.8, 1.0, 0.9, 0.4, 0.2, 10),
    MultiCrop([View(2, [RandomCrop(5), Normalize(0.5, 0.5)]), View(1, [Resize(3)])]),
    RandomRotation(30, "bilinear", expand=True, fill=(1, 2, 3)),
    RandomRotation((-5, 90), center=(3, 4.5), mask_fill=255),
    RandomAffine(0),
    RandomAffine(10, (0.1, 0.2), (0.5, 2), (1, 2, 3, 4), "bicubic", 7, (1, 2), 255),
    RandomPerspective(0.3, 0.9, "nearest", 114),
    ElasticTransform(),
    ElasticTransform((40, 30.5), (5, 9.0), "nearest", (1, 2, 3), 255),
    ScaleJitter((100, 200), (0.5, 1), "area", antialias=False),
    RandomShortestSize(100),
    RandomShortestSize((100, 200, 300), 400),
    Letterbox(640),
    Letterbox((10, 20), 0, scaleup=False, center=False),
    RandomZoomOut(3, (1, 2), 0.1, 255),
]

RECIPE = Recipe(
    fields=("image", "label"),
    transforms=(RandomResizedCrop(224), Normalize(0.5, 0.5)),
    seed=2**63,
    batch_size=256,
    world_size=8,
    shuffle=True,
    drop_last=True,
    dtype="float16",
    fingerprint="0123456789abcdef" * 2,
)


@pytest.mark.parametrize("transform", ALL, ids=lambda item: item.op)
def test_a_transform_comes_back_equal(transform):
    """Through text and back."""
    assert from_json(json.loads(json.dumps(transform.to_json()))) == transform


def test_members_with_a_default_may_be_left_out():
    """JSON that is written by hand can be short."""
    assert from_json({"op": "resize", "size": [3, 4]}) == Resize((3, 4))
    assert from_json({"op": "horizontal_flip"}) == HorizontalFlip()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("resize", "a transform must be an object"),
        ({}, "op must be one of resize.*got None"),
        ({"op": "rotate"}, "got 'rotate'"),
        ({"op": ["resize"]}, "op must be one of"),
        ({"op": "resize"}, "missing member 'size'; its members are size, interpolation, antialias"),
        ({"op": "resize", "size": 5, "sise": 5}, "unknown member 'sise'"),
        ({"op": "resize", "size": None}, "must be an integer"),
        ({"op": "resize", "size": {"height": 5}}, "must be an integer"),
        ({"op": "random_crop", "size": 5, "fill": "black"}, "must be a number"),
        ({"op": "views", "n": 2, "transforms": {}}, "transforms must be a list"),
        ({"op": "views", "n": 2, "transforms": [{"op": "pad", "padding": 1}, 5]}, "transform 1: a transform must be"),
        ({"op": "multi_crop", "views": {}}, "views must be a list"),
        ({"op": "multi_crop", "views": [{"n": 2}]}, "views 0: must be an object with the members n and transforms"),
        ({"op": "multi_crop", "views": [{"n": 1, "transforms": []}]}, "at least two groups"),
        ({"op": "random_erasing", "value": "pixel"}, "'color', 'random'"),
        ({"op": "mixup", "labels": 5}, "labels must be the name of a field"),
        ({"op": "per_sample", "callable": "os.system"}, "'os.system' is code"),
    ],
)
def test_anything_else_is_refused(document, message):
    """Nothing unknown is skipped, and no code is looked up."""
    with pytest.raises(ValueError, match=message):
        from_json(document)


def test_code_is_no_json():
    """Callables are an error, or named for the reader when that is asked for."""
    compiled = compile([Resize(5), len, PerBatch(print)])

    with pytest.raises(ValueError, match=r"PerSample\(builtins.len\) is code"):
        compiled.to_json()
    with pytest.raises(ValueError, match=r"PerBatch\(builtins.print\) is code"):
        PerBatch(print).to_json()
    assert compiled.to_json(callables=True) == [
        Resize(5).to_json(),
        {"op": "per_sample", "callable": "builtins.len"},
        {"op": "per_batch", "callable": "builtins.print"},
    ]
    assert compile([Resize(5), HorizontalFlip()]).to_json() == [Resize(5).to_json(), HorizontalFlip().to_json()]


def test_a_recipe_comes_back_equal():
    """As an object and as text."""
    document = RECIPE.to_json()

    assert document["version"] == 1
    assert Recipe.from_json(document) == RECIPE
    assert Recipe.from_json(json.dumps(document)) == RECIPE
    assert Recipe.from_json(json.dumps(document).encode()) == RECIPE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version must be 1; got 2"),
        ({"version": None}, "got None"),
        ({"threads": 4}, "unknown member 'threads'"),
        ({"fields": []}, "fields must be"),
        ({"fields": ["image", "image"]}, "distinct names"),
        ({"fields": "image"}, "distinct names"),
        ({"transforms": [{"op": "resize"}]}, "transform 0: transform 'resize': missing member 'size'"),
        ({"transforms": [{"op": "normalize", "mean": 0, "std": 1}, {"op": "pad", "padding": 1}]}, "found Pad after it"),
        ({"seed": -1}, "seed must be in .*; got -1"),
        ({"seed": 2**64}, "seed must be in"),
        ({"seed": 1.5}, "must be an integer"),
        ({"batch_size": 0}, "batch_size must be in .*; got 0"),
        ({"world_size": 0}, "world_size must be in .*; got 0"),
        ({"shuffle": 1}, "True or False"),
        ({"dtype": "int32"}, "'uint8', 'uint16', 'float16', 'float32'"),
        ({"layout": "NCHW"}, "'CHW', 'HWC'"),
        ({"color": "BGR"}, "'RGB', 'keep'"),
        ({"min_area": -1}, "min_area"),
        ({"fingerprint": "abc"}, "32 lower-case hexadecimal digits"),
        ({"selection": 5}, "32 lower-case hexadecimal digits"),
    ],
)
def test_a_wrong_recipe_is_refused(change, message):
    """The message names the member."""
    with pytest.raises(ValueError, match=message):
        Recipe.from_json({**RECIPE.to_json(), **change})


@pytest.mark.parametrize("text", ["", "[]", "{", "3"])
def test_what_is_no_recipe_at_all_is_refused(text):
    """Any text is an error, never a crash."""
    with pytest.raises(ValueError, match=r"not valid JSON|JSON object"):
        Recipe.from_json(text)


def test_a_recipe_lacks_nothing_that_has_no_default():
    """Each of the members that decide everything must be there."""
    for name in ("fields", "transforms", "seed", "batch_size", "fingerprint"):
        document = RECIPE.to_json()
        del document[name]
        with pytest.raises(ValueError, match=f"missing member '{name}'"):
            Recipe.from_json(document)


def test_a_recipe_holds_no_code():
    """Only declarative transforms."""
    with pytest.raises(TypeError, match="holds no code"):
        Recipe(fields=("image",), transforms=(PerSample(len),), seed=0, batch_size=1, fingerprint="0" * 32)


def test_the_example_of_the_spec_is_a_recipe():
    """What the document shows can be read, and every transform is described there."""
    text = SPEC.read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)

    assert Recipe.from_json(example).to_json() == json.loads(example)
    assert {item.op for item in ALL} == set(re.findall(r"^\| `(\w+)` \| [^|]* \| [^|]*\|$", text, re.MULTILINE))
