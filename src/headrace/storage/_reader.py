# SPDX-License-Identifier: Apache-2.0
"""Pieces of files as tensors on a device, by the shortest way that the machine has."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from headrace.errors import CorruptDataset, MissingExtra
from headrace.storage._ask import How, how, load_kvikio
from headrace.storage._extents import BLOCK_BYTES, Extent, Run, coalesce
from headrace.storage._files import Files

if TYPE_CHECKING:
    import torch


class DeviceReader:
    """Reads extents of files into the memory of one device. For one thread at a time.

    Args:
        device: A device of PyTorch's.
        way: "kvikio", "pinned" or "pageable"; None asks the machine.

    """

    def __init__(self, device: Any, *, way: How | None = None) -> None:
        try:
            self._torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise MissingExtra("reading into a device's memory needs PyTorch: pip install 'headrace[torch]'") from error
        self.device = self._torch.device(device)
        self.way: How = how(self.device) if way is None else way
        self._kvikio: Any = None
        if self.way == "kvikio":
            self._kvikio = load_kvikio()
            if self._kvikio is None:
                raise MissingExtra("way='kvikio' needs kvikio, which cannot be imported: leave the way out")
        self._files = Files()

    def read(self, path: str | PathLike[str], extents: Sequence[Extent] | None = None) -> list[torch.Tensor]:
        """Give a uint8 tensor for each extent, in their order; None is one extent, the whole file.

        The tensors are views of one memory, at addresses that are congruent to their offsets modulo 4096: what is
        aligned in the file can be viewed as another dtype. A tensor is there for what follows on the current stream.

        Raises:
            CorruptDataset: The file is missing, cannot be read, or ends too early.
            ValueError: An extent does not lie in the file, or is empty.

        """
        n_bytes = self._files.n_bytes(path)
        wanted = [Extent(0, n_bytes)] if extents is None else [Extent(*extent) for extent in extents]
        runs = coalesce(wanted, n_bytes) if n_bytes else []
        starts = _starts(runs)
        memory = self._read_runs(path, runs, starts, _rounded(starts[-1]))
        tensors: list[torch.Tensor] = [memory[:0]] * len(wanted)
        for run, start in zip(runs, starts, strict=False):
            for number in run.extents:
                begin = start + wanted[number].offset - run.offset
                tensors[number] = memory[begin : begin + wanted[number].length]
        return tensors

    def _read_runs(self, path: str | PathLike[str], runs: Sequence[Run], starts: Sequence[int], n_bytes: int) -> Any:
        if self.way == "kvikio":
            return self._read_direct(path, runs, starts, n_bytes)
        staged = self._torch.empty(n_bytes, dtype=self._torch.uint8, pin_memory=self.way == "pinned")
        octets = staged.numpy()
        for run, start in zip(runs, starts, strict=False):
            self._files.read_into(path, run.offset, octets[start : start + run.length])
        # PyTorch keeps pinned memory that is given back from being used again before the copy is done.
        return staged.to(self.device, non_blocking=self.way == "pinned")

    def _read_direct(self, path: str | PathLike[str], runs: Sequence[Run], starts: Sequence[int], n_bytes: int) -> Any:
        memory = self._torch.empty(n_bytes, dtype=self._torch.uint8, device=self.device)
        # Storage writes without asking any stream, and what the stream still does may be with this very memory.
        self._torch.cuda.current_stream(self.device).synchronize()
        with self._kvikio.CuFile(str(path), "r") as file:
            reads = [
                file.pread(memory[start : start + run.length], run.length, run.offset)
                for run, start in zip(runs, starts, strict=False)
            ]
            found = [_result(read) for read in reads]  # each of them: none may be under way when this ends
        for run, n_read in zip(runs, found, strict=True):
            if n_read != run.length:
                what = n_read if isinstance(n_read, Exception) else f"{n_read} of its {run.length} bytes came"
                raise CorruptDataset(
                    f"{path}: the read at offset {run.offset} failed: {what}; restore the file or build again"
                )
        return memory

    def close(self) -> None:
        """Close the files; tensors stay."""
        self._files.close()


def _result(read: Any) -> Any:
    """The number of bytes that a read of kvikio's came to, or what went wrong."""
    try:
        return read.get()
    except (RuntimeError, OSError) as error:
        return error


def _starts(runs: Sequence[Run]) -> list[int]:
    """Where each run begins in the memory of all, and where the last one ends; each at a block's begin."""
    starts = [0]
    for run in runs:
        starts.append(starts[-1] + _rounded(run.length))
    return starts


def _rounded(n_bytes: int) -> int:
    return -(-n_bytes // BLOCK_BYTES) * BLOCK_BYTES
