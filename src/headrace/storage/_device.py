# SPDX-License-Identifier: Apache-2.0
"""Read ranges of files into tensors on a device, by the most direct method that the machine supports."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import accumulate
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from headrace.errors import CorruptDataset, MissingExtra
from headrace.storage._files import Files

if TYPE_CHECKING:
    import torch

TransferMethod: TypeAlias = Literal["kvikio", "pinned", "pageable"]

# Page size of the kernel and of GPUDirect Storage: a read that starts and ends on a page needs no bounce buffer.
BLOCK_BYTES = 4096
# Reading over a gap of this size costs no more than a second read: latency times bandwidth of a typical device.
_MAX_GAP = 64 << 10


class Extent(NamedTuple):
    """A range of a file, in bytes."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


class ReadRun(NamedTuple):
    """One read: it starts at a block and ends at a block or at the end of the file."""

    offset: int
    length: int
    extents: tuple[int, ...]
    """Positions of the requested extents that it covers."""


def coalesce(extents: Sequence[Extent], n_bytes: int, *, max_gap: int = _MAX_GAP) -> list[ReadRun]:
    """Cover extents of a file of `n_bytes` with aligned reads, in file order.

    Extents may be in any order and may overlap. A gap of at most `max_gap` bytes between two extents is read too.

    Raises:
        ValueError: An extent is empty or outside the file.

    """
    runs: list[ReadRun] = []
    for number in sorted(range(len(extents)), key=lambda at: extents[at]):
        extent = extents[number]
        if extent.length < 1 or extent.offset < 0 or extent.end > n_bytes:
            raise ValueError(f"an extent must not be empty and must lie in the file of {n_bytes} bytes; got {extent}")
        begin = extent.offset // BLOCK_BYTES * BLOCK_BYTES
        end = min(_round_up(extent.end), n_bytes)
        if runs and begin <= runs[-1].offset + runs[-1].length + max_gap:
            last = runs[-1]
            end = max(end, last.offset + last.length)
            runs[-1] = ReadRun(last.offset, end - last.offset, (*last.extents, number))
        else:
            runs.append(ReadRun(begin, end - begin, (number,)))
    return runs


def transfer_method(device: Any = None) -> TransferMethod:
    """Return how bytes of a file reach a device.

    "kvikio" reads from storage into GPU memory, "pinned" copies once through pinned host memory, and "pageable" goes
    through ordinary host memory.

    Args:
        device: A PyTorch device. None means CUDA if available, otherwise the CPU.

    """
    if find_spec("torch") is None:
        return "pageable"
    torch = importlib.import_module("torch")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if torch.device(device).type != "cuda":
        return "pageable"
    return "kvikio" if getattr(torch.version, "hip", None) is None and _has_direct_storage() else "pinned"


def _has_direct_storage() -> bool:
    """Return whether kvikio is installed and the driver supports GPUDirect Storage.

    Without driver support kvikio copies through host memory as well, and our own copy is preferred.
    """
    kvikio = _load_kvikio()
    if kvikio is None:
        return False
    try:
        return not _is_compatible_only(kvikio) and _driver_supports_direct_storage()
    except (ImportError, AttributeError, KeyError, RuntimeError, ValueError):
        return False  # libcufile or its driver is missing, or this version of kvikio has another interface


def _load_kvikio() -> Any | None:
    try:
        return importlib.import_module("kvikio")
    except (ImportError, OSError):  # OSError: one of its libraries cannot be linked
        return None


def _is_compatible_only(kvikio: Any) -> bool:
    """Return whether kvikio is set to work without cuFile, or has found that it must."""
    defaults = importlib.import_module("kvikio.defaults")
    # Older versions have a function per setting, newer ones `get`.
    mode = defaults.get("compat_mode") if hasattr(defaults, "get") else defaults.compat_mode()
    modes = getattr(kvikio, "CompatMode", None)
    return bool(mode) if modes is None else mode == modes.ON


def _driver_supports_direct_storage() -> bool:
    driver = importlib.import_module("kvikio.cufile_driver")
    driver.driver_open()
    try:
        if hasattr(driver, "get"):
            return bool(driver.get("is_gds_available"))
        return bool(driver.DriverProperties().is_gds_available)
    finally:
        driver.driver_close()


class DeviceReader:
    """Reads extents of files into the memory of one device. Not thread-safe.

    Args:
        device: A PyTorch device.
        method: "kvikio", "pinned" or "pageable"; None chooses the best that the machine supports.

    """

    def __init__(self, device: Any, *, method: TransferMethod | None = None) -> None:
        try:
            self._torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise MissingExtra("reading into device memory needs PyTorch: pip install 'headrace[torch]'") from error
        self.device = self._torch.device(device)
        self.method: TransferMethod = transfer_method(self.device) if method is None else method
        self._kvikio: Any = None
        if self.method == "kvikio":
            self._kvikio = _load_kvikio()
            if self._kvikio is None:
                raise MissingExtra("method='kvikio' needs kvikio, which cannot be imported; omit the method")
        self._files = Files()

    def read(self, path: str | PathLike[str], extents: Sequence[Extent] | None = None) -> list[torch.Tensor]:
        """Return a uint8 tensor for each extent, in their order. Without `extents`, one for the complete file.

        The tensors are views of one allocation, at addresses congruent to their file offsets modulo 4096: values that
        are aligned in the file can be viewed as another dtype. The data is ready for work on the current stream.

        Raises:
            CorruptDataset: The file is missing, cannot be read, or is too short.
            ValueError: An extent is empty or outside the file.

        """
        n_bytes = self._files.n_bytes(path)
        wanted = [Extent(0, n_bytes)] if extents is None else [Extent(*extent) for extent in extents]
        runs = coalesce(wanted, n_bytes) if n_bytes else []
        *starts, end = accumulate((_round_up(run.length) for run in runs), initial=0)
        placed = list(zip(starts, runs, strict=True))
        memory = self._read_direct(path, placed, end) if self.method == "kvikio" else self._stage(path, placed, end)
        tensors: list[torch.Tensor] = [memory[:0]] * len(wanted)
        for start, run in placed:
            for number in run.extents:
                begin = start + wanted[number].offset - run.offset
                tensors[number] = memory[begin : begin + wanted[number].length]
        return tensors

    def _stage(self, path: str | PathLike[str], placed: Sequence[tuple[int, ReadRun]], n_bytes: int) -> Any:
        """Read into host memory, each run at its place, and copy that to the device."""
        staged = self._torch.empty(n_bytes, dtype=self._torch.uint8, pin_memory=self.method == "pinned")
        octets = staged.numpy()
        for start, run in placed:
            self._files.read_into(path, run.offset, octets[start : start + run.length])
        # PyTorch does not reuse freed pinned memory before the copy has finished.
        return staged.to(self.device, non_blocking=self.method == "pinned")

    def _read_direct(self, path: str | PathLike[str], placed: Sequence[tuple[int, ReadRun]], n_bytes: int) -> Any:
        """Read from storage into device memory, each run at its place."""
        memory = self._torch.empty(n_bytes, dtype=self._torch.uint8, device=self.device)
        # kvikio's reads are not ordered with the stream, whose pending work may still use this memory.
        self._torch.cuda.current_stream(self.device).synchronize()
        with self._kvikio.CuFile(str(path), "r") as file:
            reads = [file.pread(memory[start : start + run.length], run.length, run.offset) for start, run in placed]
            found = [_result(read) for read in reads]  # wait for all of them, also after an error
        for (_, run), n_read in zip(placed, found, strict=True):
            if n_read != run.length:
                what = n_read if isinstance(n_read, Exception) else f"got {n_read} of {run.length} bytes"
                raise CorruptDataset(
                    f"{path}: the read at offset {run.offset} failed: {what}; restore the file or build again"
                )
        return memory

    def close(self) -> None:
        """Close the files. Tensors stay valid."""
        self._files.close()


def _result(read: Any) -> Any:
    """Return the number of bytes of a kvikio read, or its error."""
    try:
        return read.get()
    except (RuntimeError, OSError) as error:
        return error


def _round_up(n_bytes: int) -> int:
    return -(-n_bytes // BLOCK_BYTES) * BLOCK_BYTES
