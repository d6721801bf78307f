# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import"
"""Every kernel in each of its variants, compiled ahead of time for devices that need not be present.

Used by `make kernels` and the benchmark. Does not work in a process that has TRITON_INTERPRET set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from headrace.kernels.coded import triton as coded
from headrace.kernels.finish import triton as finish
from headrace.kernels.packed import triton as packed
from headrace.kernels.palette import triton as palette
from headrace.kernels.resize import triton as resize
from headrace.kernels.tables import SLICES, TileKind
from headrace.kernels.wave import triton as wave

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
FAST_PATH = frozenset({"packed", "wave", "finish"})
"""The operations of mode `fast`; none of their kernels may spill registers."""

_POINTERS = {
    "payload": "*u8",
    "tiles": "*i64",
    "images": "*i64",
    "own_tiles": "*i32",
    "chains": "*i32",
    "ranks": "*i32",
    "factors": "*fp32",
    "entries": "*i32",
    "numbers": "*u8",
    "status": "*i32",
    "jobs": "*i64",
    "first": "*i32",
    "count": "*i32",
    "position": "*fp32",
    "step": "*fp32",
    "unit": "*fp32",
}
_OUT = {
    "uint8": ("*u8", 0),
    "uint16": ("*u16", 1),
    "int16": ("*i16", 2),
    "float16": ("*fp16", 3),
    "float32": ("*fp32", 3),
}
_DEPTHS = {8: (False, "*u8"), 16: (True, "*i16")}  # whether values are wide, and the type of a pointer to them


@dataclass(frozen=True)
class Variant:
    """A kernel with its compile-time constants."""

    operation: str
    """The folder of the kernel."""
    name: str
    kernel: Any
    constants: dict[str, Any]
    warps: int
    pointers: dict[str, str]

    def compile(self, target: GPUTarget) -> Any:
        """Compile it as a launch does: pointers are aligned, products and sums are not fused.

        For AMD GPUs a launch also declares that 32-bit offsets reach all of a tensor below 2 GiB.
        """
        names = list(self.kernel.arg_names)
        types = _POINTERS | self.pointers
        signature = {name: "constexpr" if name in self.constants else types.get(name, "i32") for name in names}
        known = [["tt.divisibility", 16], *([["tt.pointer_range", 32]] if target.backend == "hip" else [])]
        pointers = [i for i, name in enumerate(names) if signature[name].startswith("*")]
        attributes = {
            (i,): [each for each in known if each[0] != "tt.divisibility" or names[i] not in SLICES] for i in pointers
        }
        source = ASTSource(fn=self.kernel, signature=signature, constexprs=self.constants, attrs=attributes)
        return triton.compile(source, target=target, options={"num_warps": self.warps, "enable_fp_fusion": False})


def variants(target: GPUTarget) -> Iterator[Variant]:
    """Yield every kernel in the variants that differ in more than a size: halves, depths, and output dtypes."""
    yield from _index_variants(target)
    for depth, (wide, pointer) in _DEPTHS.items():
        values = {"values": pointer}
        for kind in (TileKind.PACKED, TileKind.CODED, TileKind.PALETTE):
            constants = {"KIND": int(kind), "WIDE": wide, "CHAINS": target.warp_size // 32}
            yield Variant("wave", f"{kind.name.lower()} wave, {depth} bit", wave.wave_kernel, constants, 1, values)
        constants = {"WIDE": wide, "BLOCKS": coded.BLOCKS, "CHAINS": 1}
        yield Variant(
            "coded", f"coded expand, {depth} bit", coded.coded_expand_kernel, constants, coded.BLOCK_WARPS, values
        )
        constants = {"WIDE": wide, "BLOCKS": palette.BLOCKS}
        kernel = palette.palette_expand_kernel
        yield Variant("palette", f"palette expand, {depth} bit", kernel, constants, palette.WARPS, values)
        for dtype, (out, form) in _OUT.items():
            name, pointers = f"finish, {depth} bit to {dtype}", values | {"out": out}
            for extra, ranked in {"": False, ", ranks": True}.items():
                constants = {"FORM": form, "WIDE": wide, "RANKED": ranked}
                constants |= {"STEPS": finish.STEPS, "TURNS": finish.TURNS}
                yield Variant("finish", name + extra, finish.finish_kernel, constants, finish.WARPS, pointers)
    for sample, stored in enumerate(("uint8", "uint16", "int16")):
        for dtype, (out, form) in {stored: _OUT[stored], "float32": _OUT["float32"]}.items():
            constants = {"SAMPLE": sample, "FORM": form, "ROWS": resize.ROWS, "COLUMNS": resize.COLUMNS}
            name, pointers = f"resize, {stored} to {dtype}", {"source": _OUT[stored][0], "out": out}
            yield Variant("resize", name, resize.resize_kernel, constants, resize.WARPS, pointers)


def _index_variants(target: GPUTarget) -> Iterator[Variant]:
    """Kernels of two halves, each of which is a launch on AMD GPUs (`_triton_shared.phases_of`)."""
    halves = {"": 3} if target.backend == "cuda" else {", first half": 1, ", second half": 2}
    for half, phases in halves.items():
        constants = {"PHASES": phases, "ACROSS": packed.ACROSS, "CHUNK": packed.CHUNK}
        yield Variant("packed", f"packed index{half}", packed.packed_index_kernel, constants, packed.WARPS, {})
        constants = {"PHASES": phases, "PLANES": coded.PLANES, "CHUNK": coded.INDEX_CHUNK}
        yield Variant("coded", f"coded index{half}", coded.coded_index_kernel, constants, coded.INDEX_WARPS, {})
        for depth, (wide, _pointer) in _DEPTHS.items():
            name = f"coded numbers, {depth} bit{half}"
            constants = {"PHASES": phases, "WIDE": wide, "BLOCKS": coded.BLOCKS}
            constants |= {"CHUNK": coded.CHUNK, "WORDS": coded.WORDS}
            yield Variant("coded", name, coded.coded_numbers_kernel, constants, coded.BLOCK_WARPS, {})
