# SPDX-License-Identifier: Apache-2.0
"""The types of tensors as text, and the bytes of arrays of all libraries."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.schema import make_fields
from headrace.tensors import DTYPES, TensorType, bfloat16_dtype, tensor_of


@given(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_a_type_is_its_text(dtype, shape):
    """What is written can be read again, and is a valid type of a field."""
    kind = TensorType.of(dtype, tuple(shape))

    assert TensorType.parse(str(kind)) == kind
    assert make_fields({"x": str(kind)})[0].tensor == kind


@pytest.mark.parametrize(
    "text",
    [
        "tensor<float16,[]>",
        "tensor<float16,[0]>",
        "tensor<float16,[04]>",
        "tensor<float16, [4]>",
        "tensor<float16,[4,]>",
        "tensor<float16,[4]",
        "tensor<float16,[4]>\n",
        "tensor<float8,[4]>",
        "tensor<bool,[4]>",
        "tensor<complex64,[4]>",
        "tensor<float16,[1,1,1,1,1,1,1,1,1]>",
        "tensor<float64,[134217729]>",
        "tensor<int8,[99999999999]>",
        "tensor<int8,[1073741824,1073741824,1073741824]>",
        "tensor<",
        "list<tensor<float16,[4]>>",
    ],
)
def test_what_is_no_type_is_refused(text):
    """A type that is not written exactly so, or that is too large, is an error that names the field."""
    with pytest.raises(ValueError, match="'x'"):
        make_fields({"x": text})


def test_a_tensor_cannot_belong_to_boxes():
    """Only lists follow boxes."""
    with pytest.raises(ValueError, match="must be a list"):
        make_fields({"boxes": "boxes", "x": "tensor<int8,[4]> of boxes"})


def test_any_memory_layout_and_byte_order_gives_the_same_bytes():
    """Transposed, strided and big-endian arrays are stored as contiguous little-endian numbers."""
    plain = np.arange(24, dtype="<u4").reshape(2, 3, 4)
    kind = TensorType.of("uint32", (2, 3, 4))

    for value in (plain, plain.astype(">u4"), np.asfortranarray(plain), np.repeat(plain, 2, axis=1)[:, ::2]):
        assert bytes(kind.pack(value)) == plain.tobytes()


@pytest.mark.parametrize("value", [np.zeros((2, 3), np.float64), np.zeros((3, 2), np.float32), [[0.0] * 3] * 2, "text"])
def test_another_dtype_or_shape_is_refused(value):
    """Numbers are never converted silently."""
    with pytest.raises(ValueError, match=r"tensor|must be float32"):
        TensorType.of("float32", (2, 3)).pack(value)


def test_bfloat16_of_numpy_and_torch_has_the_same_bits():
    """The bits are kept, whichever library made them."""
    torch = pytest.importorskip("torch")
    numbers = [1.5, -0.0, float("inf"), 3.0e38, 1e-40]
    kind, bits = tensor_of(torch.tensor(numbers, dtype=torch.bfloat16))

    assert kind == TensorType.of("bfloat16", (5,))
    assert kind.pack(np.array(numbers, ml_dtypes.bfloat16)) == kind.pack(torch.tensor(numbers, dtype=torch.bfloat16))
    assert bits.view(bfloat16_dtype()).astype(np.float32)[0] == 1.5


def test_tensors_of_torch_need_not_be_contiguous_or_detached():
    """A tensor that requires a gradient, or is transposed, is stored as its numbers."""
    torch = pytest.importorskip("torch")
    weights = torch.arange(6.0).reshape(2, 3).requires_grad_().T

    assert bytes(TensorType.of("float32", (3, 2)).pack(weights)) == weights.detach().numpy().tobytes()
