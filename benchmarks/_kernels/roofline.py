# SPDX-License-Identifier: Apache-2.0
"""The ceiling that a device's published peaks set for the kernels: computed from their code, not measured.

A kernel takes at least as long as its busiest pipe and as its bytes. Kernels run one after the other, so times add up:

    seconds = Σ over kernels of max(instructions of a pipe / rate of the pipe, bytes / bandwidth)

Both sides of a branch are counted, and every byte as if no cache had kept it: this makes the ceiling too low. Latency,
which many concurrent programs hide, is not counted: this makes it too high.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks._kernels.listing import Listing
    from benchmarks._kernels.workload import Batch, Work


@dataclass(frozen=True)
class Device:
    """Published peaks of a device."""

    name: str
    target: str
    multiprocessors: int
    clock_ghz: float
    memory_gbs: float
    bus: str
    bus_gbs: float
    source: str


def _pcie(transfers: int) -> float:
    """GB/s of 16 lanes, one direction: gigatransfers of one bit per lane, of which 128 in 130 are data."""
    return transfers * 16 * 128 / 130 / 8


DEVICES = (
    Device(
        "A100 SXM 40 GB",
        "sm_80",
        108,
        1.41,
        1555,
        "PCIe 4.0 x16",
        _pcie(16),
        "NVIDIA A100 Tensor Core GPU Architecture, whitepaper, 2020: 108 SMs, 1410 MHz boost, 1555 GB/s; its "
        "19.5 INT32 TOPS are 64 lanes per SM",
    ),
    Device(
        "H100 SXM 80 GB",
        "sm_90",
        132,
        1.98,
        3350,
        "PCIe 5.0 x16",
        _pcie(32),
        "NVIDIA H100 Tensor Core GPU Architecture, whitepaper, 2022, and data sheet: 132 SMs, 3.35 TB/s; its "
        "33.5 INT32 TOPS are 64 lanes per SM at 1.98 GHz",
    ),
)

# Warp instructions per cycle of a multiprocessor. From the table of arithmetic throughput in the CUDA C++ Programming
# Guide (compute capability 8.0 and 9.0: per cycle 64 integer operations, 64 or 128 of float, 32 shuffles, 16
# conversions and population counts). Of float the lower figure is used, because integer products use the same pipe.
RATES = {"issue": 4.0, "integer": 2.0, "multiply": 2.0, "memory": 1.0, "conversion": 0.5, "uniform": 2.0}
RATES_SOURCE = "CUDA C++ Programming Guide, arithmetic instructions; pipes as in the Nsight Compute Profiling Guide"

_PIPES = (
    ("multiply", ("IMAD", "FMUL", "FADD", "FFMA", "HADD", "HMUL", "HFMA")),
    ("memory", ("LD", "ST", "SHFL", "ATOM", "RED", "S2R")),
    ("conversion", ("I2F", "F2I", "F2F", "MUFU", "POPC", "FLO", "BREV", "I2I", "FRND")),
    (
        "control",
        ("BRA", "BAR", "EXIT", "BSSY", "BSYNC", "WARPSYNC", "DEPBAR", "CALL", "RET", "BREAK", "YIELD", "ERRBAR"),
    ),
    ("control", ("MEMBAR", "CCTL", "ACQBULK", "NANOSLEEP", "BMOV")),
    ("uniform", ("U", "R2UR", "S2UR")),
)


def pipe_of(opcode: str) -> str:
    """The pipe of an instruction; an instruction on no list is an integer operation."""
    if opcode.startswith(("I2FP", "F2FP")):
        return "integer"
    return next((pipe for pipe, beginnings in _PIPES if opcode.startswith(beginnings)), "integer")


def executed(listing: Listing, warps: int, work: Work) -> Counter[str]:
    """Warp instructions of each pipe, and of all as "issue"."""
    if len(listing.loops) != len(work.turns):
        raise ValueError(
            f"{work.kernel} has {len(listing.loops)} loops in its code and {len(work.turns)} in "
            "benchmarks/_kernels/workload.py: the compiler split or unrolled one; state there how often each runs"
        )
    times = [work.programs] * len(listing.opcodes)
    for (first, last), turns in zip(listing.loops, work.turns, strict=True):  # outer loops come before inner ones
        times[first : last + 1] = [turns] * (last + 1 - first)
    counts: Counter[str] = Counter()
    for opcode, count in zip(listing.opcodes, times, strict=True):
        counts[pipe_of(opcode)] += count * warps
        counts["issue"] += count * warps
    del counts["control"]
    return counts


def ceiling(
    device: Device, batch: Batch, works: Sequence[Work], listings: Mapping[str, tuple[Listing, int]]
) -> dict[str, Any]:
    """Return the rates that a device cannot exceed on a batch, with their derivation."""
    cycles_per_second = device.multiprocessors * device.clock_ghz * 1e9
    kernels = []
    for work in works:
        counts = executed(*listings[work.kernel], work)
        seconds = {pipe: count / RATES[pipe] / cycles_per_second for pipe, count in counts.items()}
        seconds["bandwidth"] = work.n_bytes / (device.memory_gbs * 1e9)
        bound = max(seconds, key=seconds.__getitem__)
        kernels.append(
            {
                "kernel": work.kernel,
                "programs": work.programs,
                "instructions_per_pixel": {pipe: 32 * count / batch.pixels for pipe, count in counts.items()},
                "bytes_per_pixel": work.n_bytes / batch.pixels,
                "bound": bound,
                "picoseconds_per_pixel": 1e12 * seconds[bound] / batch.pixels,
            }
        )
    pixels_per_second = 1e12 / sum(kernel["picoseconds_per_pixel"] for kernel in kernels)
    compressed = batch.n_bytes / batch.pixels
    return {
        "device": asdict(device),
        "launches": len(works),
        "kernels": kernels,
        "gigapixels_per_second": pixels_per_second / 1e9,
        "compressed_bytes_per_pixel": compressed,
        "compressed_gbs": pixels_per_second * compressed / 1e9,
        "bus_gigapixels_per_second": device.bus_gbs / compressed,
        "times_bus": pixels_per_second * compressed / 1e9 / device.bus_gbs,
    }
