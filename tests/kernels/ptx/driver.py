# SPDX-License-Identifier: Apache-2.0
"""A driver for Triton whose device is the executor: kernels are compiled as for the real device and run on the CPU.

Triton's own launch code does the rest: it specialises arguments, compiles, caches and calls the launcher. So what is
run is what a device would run, with the block sizes of a device. Tensors are those of the CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tests.kernels.ptx.program import Memory, Program
from triton.backends.compiler import GPUTarget
from triton.runtime import driver as drivers
from triton.runtime.cache import get_cache_manager

Arguments = Mapping[str, Any]


class Executor:
    """Stands for Triton's driver of one device. `TRITON_INTERPRET` must not be set."""

    def __init__(
        self,
        target: GPUTarget,
        folder: Path,
        *,
        writable: frozenset[str],
        pieces: Callable[[str, Arguments], list[tuple[int, int]] | None] = lambda _name, _arguments: None,
        edit: Callable[[str, str], str] = lambda _name, ptx: ptx,
    ) -> None:
        """Make a driver.

        Args:
            target: What to compile for.
            folder: Where compiled programs are kept.
            writable: The names of the parameters through which kernels write.
            pieces: Gives the parts of a tensor that may be accessed, (begin, n_bytes) each; None for all of it.
            edit: Changes the PTX of a kernel of this name, to see whether the change is noticed.

        """
        self.target, self.folder = target, folder
        self.writable, self.pieces, self.edit = writable, pieces, edit
        self.backwards, self.fill = False, 0xA5
        self.launches: Counter[str] = Counter()
        self.launcher_cls, self.utils = self._launcher, self

    # What Triton asks of a driver.

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return int(self.target.arch)  # kernels are cached by this number

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return {"max_shared_mem": 99 << 10}  # the least of the devices from sm_80 on

    def load_binary(self, *_args: Any) -> tuple[None, int, int, int, int]:
        return None, 0, 0, 0, 1024  # no module to unload, and as many threads as a device allows

    def _launcher(self, source: Any, metadata: Any) -> Callable[..., None]:
        return _Launcher(source, metadata)


class _Launcher:
    """Runs one compiled kernel. Triton keeps it for all launches on a device of this number, on any executor."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self._name, self._names = source.fn.__name__, list(source.fn.arg_names)
        constants = {path[0] for path in source.constants}
        self._passed = [name for at, name in enumerate(self._names) if at not in constants]
        # Triton gives launchers no PTX, but keeps it beside the binary.
        kept = get_cache_manager(metadata.hash).get_group(f"{source.name}.json")
        self._ptx = Path(kept[f"{source.name}.ptx"]).read_text()
        self._threads, self._shared = 32 * metadata.num_warps, metadata.shared

    def __call__(self, x: int, y: int, z: int, _stream: int, *rest: Any) -> None:
        executor: Any = drivers.active
        bound = dict(zip(self._names, rest[5:], strict=True))
        values, memory = [], []
        for name in self._passed:
            value = bound[name]
            if isinstance(value, torch.Tensor):
                values.append(value.data_ptr())
                memory += _memory_of(value, executor.pieces(name, bound), writable=name in executor.writable)
            else:
                values.append(int(value))
        executor.launches[self._name] += 1
        program = _program(executor.edit(self._name, self._ptx), self._threads, self._shared, executor.folder)
        program.run((x, y, z), values, memory, backwards=executor.backwards, fill=executor.fill)


@cache
def _program(ptx: str, threads: int, shared: int, folder: Path) -> Program:
    return Program(ptx, threads=threads, shared_bytes=shared, folder=folder)


def _memory_of(tensor: torch.Tensor, pieces: list[tuple[int, int]] | None, *, writable: bool) -> list[Memory]:
    begin = tensor.data_ptr()
    if pieces is not None:
        return [Memory(begin + at, n_bytes, writable) for at, n_bytes in pieces]
    if tensor.numel() == 0:
        return []
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return [Memory(begin, (last + 1) * tensor.element_size(), writable)]
