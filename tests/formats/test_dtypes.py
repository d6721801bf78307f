# SPDX-License-Identifier: Apache-2.0
"""An array that no format holds is refused with what to do about it, wherever it is handed in."""

from __future__ import annotations

import numpy as np
import pytest

import headrace
from headrace import formats
from headrace.errors import HeadraceError, UnsupportedImage

WAYS = {
    "encode": headrace.encode,
    **{
        name: lambda image, n=name: formats.get(n).encode(image, mode="90" if n == "jpeg" else None)
        for name in formats.NAMES
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dtype", "words"), [("float32", "scale and round"), ("bool", "astype"), ("int64", "astype")])
def test_arrays_of_other_dtypes(way, dtype, words):
    with pytest.raises(UnsupportedImage, match=rf"{dtype}.*{words}"):
        WAYS[way](np.zeros((4, 5, 3), dtype))


@pytest.mark.parametrize("way", WAYS)
def test_tensors(way):
    torch = pytest.importorskip("torch")
    assert WAYS[way](torch.zeros((4, 5, 3), dtype=torch.uint8))
    for tensor, words in (
        (torch.zeros((4, 5, 3)), "float32.*scale and round"),
        (torch.zeros((3, 40, 50), dtype=torch.uint8), "permute"),
        (torch.zeros((4, 5, 3), requires_grad=True), "detach"),
        (torch.zeros((4, 5, 3), dtype=torch.bfloat16), "detach"),
    ):
        with pytest.raises(UnsupportedImage, match=words):
            WAYS[way](tensor)


def test_a_writer_and_a_build_say_the_same(tmp_path):
    image = np.zeros((4, 5, 3), np.float32)
    with (
        pytest.raises(HeadraceError, match=r"float32 \[4, 5, 3\].*scale and round"),
        headrace.Writer(tmp_path / "a.hr", fields={"image": "image"}, workers=1) as writer,
    ):
        writer.write({"image": image})
    with pytest.raises(HeadraceError, match=r"'image'.*float32 \[4, 5, 3\].*scale and round"):
        headrace.build([{"image": image}], tmp_path / "b.hr")
