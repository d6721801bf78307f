# SPDX-License-Identifier: Apache-2.0
"""The arrays of a batch as the trainer's framework knows them, without a copy where that is possible."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.errors import MissingExtra
from headrace.loader._options import OutputName
from headrace.records import Boxes


class Output(Protocol):
    """A framework's way to hold numbers."""

    def tensor(self, array: npt.NDArray[Any]) -> Any:
        """Take over an array; its memory stays in use as long as the result does."""
        ...

    def stack(self, tensors: list[Any]) -> Any: ...

    def is_tensor(self, value: Any) -> bool: ...

    def to_numpy(self, tensor: Any) -> npt.NDArray[Any]: ...


class NumpyOutput:
    """Arrays as they are."""

    def tensor(self, array: npt.NDArray[Any]) -> Any:
        return array

    def stack(self, tensors: list[Any]) -> Any:
        return np.stack(tensors)

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def to_numpy(self, tensor: Any) -> npt.NDArray[Any]:
        return np.asarray(tensor)


class TorchOutput:
    """Tensors of PyTorch on the same memory."""

    def __init__(self) -> None:
        self._torch: Any = _import("torch", "pip install 'headrace[torch]'")

    def tensor(self, array: npt.NDArray[Any]) -> Any:
        # Only what a user's own function gave can be read-only, or run backwards; PyTorch takes neither.
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
    """Arrays of JAX, on JAX's default device; on a CPU they share the memory where it is aligned as JAX likes."""

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
        raise MissingExtra(f"output={name!r} needs {name}: {remedy}, or say output='numpy'") from error


def make_output(name: OutputName) -> Output:
    kinds: dict[str, Callable[[], Output]] = {"torch": TorchOutput, "numpy": NumpyOutput, "jax": JaxOutput}
    return kinds[name]()


def map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Rebuild dicts, lists, tuples and boxes with every value in them changed."""
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
    """Give a batch, or a sample, with each of its NumPy arrays as the framework's own."""
    return map_leaves(tree, lambda leaf: output.tensor(leaf) if isinstance(leaf, np.ndarray) else leaf)
