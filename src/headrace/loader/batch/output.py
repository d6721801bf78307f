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

OutputName: TypeAlias = Literal["torch", "numpy", "jax"]


@dataclass(frozen=True, slots=True)
class Output:
    """The tensors of one framework."""

    tensor: Callable[[npt.NDArray[Any]], Any]
    """Convert an array. The result keeps the array's memory alive if it shares it."""
    stack: Callable[[list[Any]], Any]
    kind: type

    def to_numpy(self, tensor: Any) -> npt.NDArray[Any]:
        return np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor)


def make_output(name: OutputName) -> Output:
    """Return NumPy arrays unchanged, PyTorch tensors that share the memory, or arrays on JAX's default device."""
    if name == "numpy":
        return Output(lambda array: array, np.stack, np.ndarray)
    try:
        framework: Any = importlib.import_module(name)
    except ImportError as error:
        package = "'headrace[torch]'" if name == "torch" else name
        raise MissingExtra(f"output={name!r} needs {name}: pip install {package}, or use output='numpy'") from error
    if name == "jax":
        return Output(framework.numpy.asarray, framework.numpy.stack, framework.Array)

    def tensor(array: npt.NDArray[Any]) -> Any:
        # PyTorch accepts neither read-only arrays nor negative strides. Only user functions return such arrays.
        if not array.flags.writeable or min(array.strides, default=0) < 0:
            array = array.copy()
        return framework.from_numpy(array)

    return Output(tensor, framework.stack, framework.Tensor)


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
