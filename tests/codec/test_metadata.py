# SPDX-License-Identifier: Apache-2.0
"""Metadata comes back as it was given, and never changes a pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.codec.pictures import Recipe

import headrace

if TYPE_CHECKING:
    from tests.codec.implementations import Implementation, Mode, Native

# Surrogates are no text: UTF-8 cannot carry them.
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255).filter(
    lambda key: len(key.encode()) <= 255
)
entries = st.dictionaries(keys | st.sampled_from(["icc", "exif", "xmp"]), st.binary(max_size=300), max_size=6)


@given(metadata=entries)
def test_any_entries_come_back(implementation: Implementation, mode: Mode, metadata: dict[str, bytes]) -> None:
    image = Recipe(9, 13, 3).render()

    data = implementation.encode(image, mode=mode, metadata=metadata)

    assert dict(headrace.inspect(data).metadata) == metadata
    np.testing.assert_array_equal(implementation.decode(data), image)


def test_the_order_in_which_entries_are_given_does_not_matter(mode: Mode) -> None:
    image = Recipe(9, 13, 3).render()
    metadata = {"b": b"2", "a": b"1", "é": b"3", "aa": b""}

    forwards = headrace.encode(image, mode=mode, metadata=metadata)

    assert headrace.encode(image, mode=mode, metadata=dict(reversed(metadata.items()))) == forwards


def test_text_is_stored_as_utf_8(mode: Mode) -> None:
    data = headrace.encode(Recipe(3, 3).render(), mode=mode, metadata={"note": "Mühle", "empty": ""})

    assert dict(headrace.inspect(data).metadata) == {"note": "Mühle".encode(), "empty": b""}


def test_a_megabyte_of_metadata(native: Native, mode: Mode) -> None:
    image = Recipe(33, 33, 3).render()
    profile = np.random.default_rng(0).bytes(1 << 20)

    data = native.encode(image, mode=mode, metadata={"icc": profile, "k" * 255: b"long"})

    assert headrace.inspect(data).metadata["icc"] == profile
    np.testing.assert_array_equal(native.decode(data), image)
