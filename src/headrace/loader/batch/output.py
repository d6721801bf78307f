# SPDX-License-Identifier: Apache-2.0
"""The arrays of a batch as tensors of the user's framework, without a copy where possible."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import MissingExtra
from headrace.records import Boxes
from headrace.tensors import BFLOAT16, TensorType, bfloat16_dtype

OutputName: TypeAlias = Literal["torch", "numpy", "jax"]


@dataclass(frozen=True, slots=True)
class Output:
    """The tensors of one framework."""

    tensor: Callable[[npt.NDArray[Any]], Any]
    """Convert an array. The result keeps the array's memory alive if it shares it."""
    stack: Callable[[list[Any]], Any]
    kind: type
    bfloat16: Callable[[npt.NDArray[np.uint16]], Any]
    """Convert the bits of bfloat16 numbers, as `tensor` converts an array."""

    def numbers(self, kind: TensorType, rows: npt.NDArray[np.uint8]) -> Any:
        """Return stored tensors `[samples, bytes]` as `[samples, *shape]`, in the same memory if possible."""
        numbers = kind.numbers(rows)
        return self.bfloat16(numbers) if kind.dtype == BFLOAT16 else self.tensor(numbers)

    def to_numpy(self, tensor: Any) -> npt.NDArray[Any]:
        return np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor)


def make_output(name: OutputName) -> Output:
    """Return NumPy arrays unchanged, PyTorch tensors that share the memory, or arrays on JAX's default device."""
    if name == "numpy":
        return Output(lambda array: array, np.stack, np.ndarray, lambda bits: bits.view(bfloat16_dtype()))
    try:
        framework: Any = importlib.import_module(name)
    except ImportError as error:
        package = "'headrace[torch]'" if name == "torch" else name
        raise MissingExtra(f"output={name!r} needs {name}: pip install {package}, or use output='numpy'") from error
    if name == "jax":
        to_jax = framework.numpy.asarray
        return Output(to_jax, framework.numpy.stack, framework.Array, lambda bits: to_jax(bits.view(bfloat16_dtype())))

    def tensor(array: npt.NDArray[Any]) -> Any:
        # PyTorch accepts neither read-only arrays nor negative strides. Only user functions return such arrays.
        if not array.flags.writeable or min(array.strides, default=0) < 0:
            array = array.copy()
        return framework.from_numpy(array)

    def bfloat16(bits: npt.NDArray[np.uint16]) -> Any:
        return tensor(bits.view(np.int16)).view(framework.bfloat16)  # older versions of PyTorch have no uint16

    return Output(tensor, framework.stack, framework.Tensor, bfloat16)


def map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to every value within nested dicts, lists, tuples and boxes."""
    if isinstance(tree, dict):
        return {name: map_leaves(value, change) for name, value in tree.items()}
    if isinstance(tree, Boxes):
        return Boxes(change(tree.xyxy), change(tree.labels))
    if isinstance(tree, list):
        return [map_leaves(value, change) for value in tree]
    if isinstance(tree, tuple):
        values = [map_leaves(value, change) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else tuple(values)
    return change(tree)


def as_tensors(tree: Any, output: Output) -> Any:
    """Convert all NumPy arrays of a batch or a sample."""
    return map_leaves(tree, lambda leaf: output.tensor(leaf) if isinstance(leaf, np.ndarray) else leaf)
