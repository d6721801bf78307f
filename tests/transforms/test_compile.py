# SPDX-License-Identifier: Apache-2.0
"""Lists of transforms are checked as a whole and made ready to run."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from tests.transforms.samples import noise

import headrace
from headrace.transforms import (
    HorizontalFlip,
    Normalize,
    PerBatch,
    PerSample,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Views,
    compile,  # noqa: A004
)

KEY = {"seed": 3, "epoch": 1, "sample": 7}


@pytest.mark.parametrize(
    ("transforms", "error", "message"),
    [
        ([len, Resize(5)], ValueError, r"found Resize at position 1"),
        ([PerBatch(len), Resize(5)], ValueError, "declarative transforms must come before"),
        ([PerBatch(len), PerSample(len)], ValueError, "must come before PerBatch"),
        ([Normalize(0.5, 0.5), Resize(5)], ValueError, "found Resize after it"),
        ([Resize(5), Views(2, [])], ValueError, "Views must be the only declarative transform: move Resize"),
        ([Views(2, []), Resize(5)], ValueError, "move Resize into it"),
        ([HorizontalFlip], TypeError, r"HorizontalFlip is a class; pass an instance, HorizontalFlip\("),
        ([5], TypeError, "transform 0: must be callable; got 5"),
        ([HorizontalFlip()] * 513, ValueError, "at most 512 operations"),
    ],
)
def test_a_list_in_the_wrong_order_raises_an_error_with_the_right_order(transforms, error, message):
    """Declarative first, `Normalize` last among them, then callables, then those for whole batches."""
    with pytest.raises(error, match=message):
        compile(transforms)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int32"}, "'uint8', 'uint16', 'float16', 'float32' or None"),
        ({"dtype": "nonsense"}, "got 'nonsense'"),
        ({"dtype": "uint8"}, "must be 'float32' or 'float16'"),
        ({"layout": "NHWC"}, "'CHW', 'HWC'"),
        ({"color": "BGR"}, "'auto', 'RGB', 'keep'"),
    ],
)
def test_wrong_options_raise_an_error_with_the_choices(options, message):
    """What is possible is part of the message."""
    with pytest.raises(ValueError, match=message):
        compile([Normalize(0.5, 0.5)], **options)


def test_a_list_falls_into_its_parts():
    """Callables are kept in order, and views unpacked."""
    compiled = compile(
        [Views(4, [Resize(5), Normalize(0.5, 0.5)]), len, PerSample(abs), PerBatch(print)], dtype="float16"
    )

    assert compiled.views == 4
    assert compiled.per_sample == (len, abs)
    assert compiled.per_batch == (print,)
    assert compiled.image.shape(10, 20, 3, "uint8", **KEY) == ((3, 5, 10), "float16")
    assert compiled.mask.shape(10, 20, 1, "uint16", **KEY) == ((5, 10), "uint16")


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_nothing_leaves_images_as_they_are(nothing):
    """No transform at all is one that copies."""
    image = noise(np.random.default_rng(0), 4, 5, 3, "uint16")

    assert np.array_equal(compile(nothing, layout="HWC").image.apply(image, **KEY), image)


def test_one_transform_needs_no_list():
    """A transform, or a callable such as a Compose of torchvision's, stands for a list of one."""
    assert compile(Resize(5)).transforms == (Resize(5),)
    assert compile(len).per_sample == (len,)


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("float16")])
def test_dtypes_have_many_spellings(dtype):
    """Words and NumPy's own."""
    assert compile([], dtype=dtype).dtype == "float16"


def test_compiled_transforms_travel_between_processes():
    """Pickled as what they were made of."""
    compiled = compile([RandomCrop(5), PerSample(len)], dtype="float32", layout="HWC", color="keep")
    image = noise(np.random.default_rng(0), 40, 50, 1, "uint8")

    copy = pickle.loads(pickle.dumps(compiled))

    assert copy == compiled
    assert np.array_equal(copy.image.apply(image, **KEY), compiled.image.apply(image, **KEY))


@pytest.mark.parametrize("mode", ["fast", "dense"])
def test_a_crop_of_encoded_bytes_is_that_of_the_pixels(mode):
    """Decoding only what a crop needs changes nothing."""
    image = noise(np.random.default_rng(0), 150, 300, 3, "uint8")
    compiled = compile([RandomResizedCrop(32), HorizontalFlip(), Normalize(0.5, 0.5)])
    code = {"fast": 1, "dense": 2}[mode]

    for sample in range(20):
        key = {"seed": 0, "epoch": 0, "sample": sample}
        run = compiled.image.run(headrace.encode(image, mode=mode), code, **key)
        assert np.array_equal(run, compiled.image.apply(image, **key))
