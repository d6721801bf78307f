# SPDX-License-Identifier: Apache-2.0
"""Any iterable of dicts."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from PIL import Image
from tests.sources.pictures import keys, pixels, png, samples

from headrace.errors import BadSource
from headrace.sources import IterableSource


def test_fields_are_inferred_from_the_first_sample():
    """Every type, as it comes in Python and NumPy."""
    sample = {
        "image": pixels(0),
        "mask": pixels(1, channels=1),
        "file": png(2),
        "pillow": Image.fromarray(pixels(3)),
        "boxes": (np.zeros((2, 4)), np.array([1, 2])),
        "more": {"boxes": [[1, 2, 3, 4]], "labels": [5]},
        "label": np.int32(3),
        "flag": True,
        "score": 0.5,
        "name": "x",
        "blob": b"\0\1",
        "ints": [1, 2],
        "reals": np.array([0.5]),
        "words": ("a", "b"),
    }
    source = IterableSource([sample])
    (found,) = samples(source)

    assert source.fields == {
        "image": "image",
        "mask": "mask",
        "file": "image",
        "pillow": "image",
        "boxes": "boxes",
        "more": "boxes",
        "label": "int64",
        "flag": "int64",
        "score": "float32",
        "name": "str",
        "blob": "bytes",
        "ints": "list<int64>",
        "reals": "list<float32>",
        "words": "list<str>",
    }
    assert found["file"].format == "png"
    assert np.array_equal(found["pillow"], pixels(3))
    assert np.array_equal(found["more"][0], [[1, 2, 3, 4]])
    assert (found["label"], found["flag"], found["words"]) == (3, True, ("a", "b"))


def test_a_generator_is_iterated_once_and_lazily():
    """One sample is held at a time."""
    taken = []

    def generate():
        for number in range(5):
            taken.append(number)
            yield {"image": pixels(number), "label": number}

    source = IterableSource(generate())
    assert taken == [0]
    for number, item in enumerate(source.items()):
        assert taken[-1] == number
        assert source.load(item)["label"] == number
        assert item.key == f"{number:09d}"
    with pytest.raises(BadSource, match="once"):
        keys(source)


def test_a_list_is_iterated_again():
    """A resumed build lists it again."""
    source = IterableSource([{"image": pixels(0), "__key__": "first"}, {"image": pixels(1), "__key__": "second"}])

    assert keys(source) == keys(source) == ["first", "second"]
    assert source.fields == {"image": "image"}


def test_items_are_loaded_in_order():
    """An item of the past is gone."""
    source = IterableSource([{"image": pixels(0)}, {"image": pixels(1)}])
    first, _ = source.items()
    with pytest.raises(BadSource, match="before asking for the next"):
        source.load(first)


def test_it_stays_in_its_process():
    """Samples are sent to workers, not the source."""
    with pytest.raises(TypeError, match="process"):
        pickle.dumps(IterableSource([{"image": pixels(0)}]))


@pytest.mark.parametrize(
    "second",
    [
        {"image": pixels(1)},
        {"image": pixels(1), "label": 1, "extra": 1},
        {"image": pixels(1).astype(np.float32), "label": 1},
        {"image": pixels(1)[0, 0], "label": 1},
        {"image": None, "label": 1},
        {"image": b"", "label": 1},
    ],
    ids=["missing", "extra", "float", "one-dimensional", "none", "empty"],
)
def test_samples_that_differ_from_the_first_are_named(second):
    """By their number and field."""
    source = IterableSource([{"image": pixels(0), "label": 0}, second])
    items = source.items()
    next(items)
    with pytest.raises(BadSource, match="000000001"):
        source.load(next(items))


@pytest.mark.parametrize(
    "given", [[], [5], [{"a.b": 1}], [{"_x": 1}], [{"key": 1}], [{"x": None}], [{"x": []}], [{1: 2}]]
)
def test_first_samples_that_say_too_little_are_refused(given):
    """Nothing, no dict, a name that no column can have, or a value without a type."""
    with pytest.raises(BadSource):
        IterableSource(given)


def test_fields_can_be_given():
    """Where the first sample is not typical."""
    source = IterableSource([{"image": pixels(0), "tags": []}], fields={"image": "image", "tags": "list<str>"})

    assert samples(source)[0]["tags"] == []


@pytest.mark.parametrize("key", [3, "", None])
def test_a_key_is_text(key):
    """And not empty."""
    with pytest.raises(BadSource, match="key"):
        keys(IterableSource([{"image": pixels(0), "__key__": key}]))
