# SPDX-License-Identifier: Apache-2.0
"""Runs the tests over each implementation, in a quicker interpreter, with outputs and scratch poisoned."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("torch") is None:
    collect_ignore_glob = ["*.py"]
else:
    import torch
    from tests.kernels import devices, interpreter

    @pytest.fixture(autouse=True, scope="session")
    def _one_thread() -> Iterator[None]:
        """The tensors are small: threads would wait for one another more than they work."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)

    @pytest.fixture(params=devices.BACKENDS)
    def backend(request: pytest.FixtureRequest) -> str:
        """Each implementation of the operations."""
        name: str = request.param
        return name

    @pytest.fixture
    def triton_backend() -> str:
        """The kernels alone, for what the plain references do not promise."""
        pytest.importorskip("triton")
        return "triton"

    @pytest.fixture(autouse=True)
    def _quick_interpreter() -> Iterator[None]:
        with interpreter.quick():
            yield

    @pytest.fixture(autouse=True)
    def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
        """Memory that nobody wrote must not look as if somebody had."""
        empty = torch.empty

        def poisoned(*args: Any, **options: Any) -> torch.Tensor:
            tensor = empty(*args, **options)
            if tensor.numel():
                tensor.view(-1).view(torch.uint8).fill_(0xCD)
            return tensor

        monkeypatch.setattr(torch, "empty", poisoned)
