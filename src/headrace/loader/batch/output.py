# SPDX-License-Identifier: Apache-2.0
"""The arrays of a batch as tensors of the user's framework, without a copy where possible."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import MissingExtra
from headrace.records import Boxes

OutputName: TypeAlias = Literal["torch", "numpy", "jax"]


class Output(Protocol):
    """The tensors of one framework."""

    def tensor(self, array: npt.NDArray[Any]) -> Any:
        """Convert an array. The result keeps the array's memory alive if it shares it."""
        ...

    def stack(self, tensors: list[Any]) -> Any: ...

    def is_tensor(self, value: Any) -> bool: ...

    def to_numpy(self, tensor: Any) -> npt.NDArray[Any]: ...


class NumpyOutput:
    """NumPy arrays, unchanged."""

    def tensor(self, array: npt.NDArray[Any]) -> Any:
        return array

    def stack(self, tensors: list[Any]) -> Any:
        return np.stack(tensors)

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def to_numpy(self, tensor: Any) -> npt.NDArray[Any]:
        return np.asarray(tensor)


class TorchOutput:
    """PyTorch tensors that share the memory."""

    def __init__(self) -> None:
        self._torch: Any = _import("torch", "pip install 'headrace[torch]'")

    def tensor(self, array: npt.NDArray[Any]) -> Any:
        # PyTorch accepts neither read-only arrays nor negative strides. Only user functions return such arrays.
        if not array.flags.writeable or min(array.strides, default=0) < 0:
            array = array.copy()
        return self._torch.from_numpy(array)

    def stack(self, tensors: list[Any]) -> Any:
        return self._torch.stack(tensors)

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor)

    def to_numpy(self, tensor: Any) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = tensor.detach().cpu().numpy()
        return array


class JaxOutput:
    """JAX arrays on JAX's default device. On a CPU they share the memory if its alignment suits JAX."""

    def __init__(self) -> None:
        self._jax: Any = _import("jax", "pip install jax")
        self._numpy: Any = importlib.import_module("jax.numpy")

    def tensor(self, array: npt.NDArray[Any]) -> Any:
        return self._numpy.asarray(array)

    def stack(self, tensors: list[Any]) -> Any:
        return self._numpy.stack(tensors)

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._jax.Array)

    def to_numpy(self, tensor: Any) -> npt.NDArray[Any]:
        return np.asarray(tensor)


def _import(name: str, remedy: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(f"output={name!r} needs {name}: {remedy}, or use output='numpy'") from error


def make_output(name: OutputName) -> Output:
    kinds: dict[str, Callable[[], Output]] = {"torch": TorchOutput, "numpy": NumpyOutput, "jax": JaxOutput}
    return kinds[name]()


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
