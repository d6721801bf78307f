# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import"
"""Compiling every kernel ahead of time, for devices that are not there: what `make kernels` and the benchmark do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from headrace.kernels._fields import Kind
from headrace.kernels.coded import triton as coded
from headrace.kernels.coded._expand import coded_expand_kernel
from headrace.kernels.coded._index import coded_index_kernel
from headrace.kernels.coded._numbers import coded_numbers_kernel
from headrace.kernels.finish import triton as finish
from headrace.kernels.packed import triton as packed
from headrace.kernels.palette import triton as palette
from headrace.kernels.resize import triton as resize
from headrace.kernels.wave import triton as wave

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
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
_OUT = {"uint8": ("*u8", 0), "float16": ("*fp16", 3), "float32": ("*fp32", 3)}


@dataclass(frozen=True)
class Variant:
    """A kernel with its compile-time constants chosen."""

    name: str
    kernel: Any
    constants: dict[str, Any]
    warps: int
    pointers: dict[str, str]
    mode: str
    """Of which mode's images it is the path: "fast", "dense" or "both"."""

    def compile(self, target: GPUTarget) -> Any:
        """Compile it as a launch would: pointers are aligned, products and sums are not fused."""
        names = list(self.kernel.arg_names)
        types = _POINTERS | self.pointers
        signature = {name: "constexpr" if name in self.constants else types.get(name, "i32") for name in names}
        aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith("*")}
        source = ASTSource(fn=self.kernel, signature=signature, constexprs=self.constants, attrs=aligned)
        return triton.compile(source, target=target, options={"num_warps": self.warps, "enable_fp_fusion": False})


def variants() -> Iterator[Variant]:
    """Every kernel, in the variants that differ in more than a size: 8 and 16 bits, and the dtypes of the output."""
    yield Variant(
        "packed index",
        packed.packed_index_kernel,
        {"PHASES": 3, "ACROSS": packed.across_of(256), "CHUNK": packed.CHUNK},
        packed.WARPS,
        {},
        "fast",
    )
    yield Variant(
        "coded index",
        coded_index_kernel,
        {"PHASES": 3, "PLANES": coded.PLANES, "CHUNK": coded.INDEX_CHUNK},
        coded.WARPS,
        {},
        "dense",
    )
    yield Variant(
        "coded numbers",
        coded_numbers_kernel,
        {"PHASES": 3, "BLOCKS": coded.BLOCKS, "CHUNK": coded.CHUNK},
        coded.WARPS,
        {},
        "dense",
    )
    for bits, wide in ((8, False), (16, True)):
        values = {"values": "*i16" if wide else "*u8"}
        for kind, mode in ((Kind.PACKED, "fast"), (Kind.CODED, "dense"), (Kind.PALETTE, "both")):
            yield Variant(
                f"{kind.name.lower()} wave, {bits} bit",
                wave.wave_kernel,
                {"KIND": int(kind), "WIDE": wide, "CHAINS": wave.CHAINS},
                1,
                values,
                mode,
            )
        yield Variant(
            f"coded expand, {bits} bit",
            coded_expand_kernel,
            {"WIDE": wide, "BLOCKS": coded.BLOCKS},
            coded.WARPS,
            values,
            "dense",
        )
        yield Variant(
            f"palette expand, {bits} bit",
            palette.palette_expand_kernel,
            {"WIDE": wide, "BLOCKS": palette.BLOCKS},
            palette.WARPS,
            values,
            "both",
        )
        for dtype, (pointer, form) in _OUT.items():
            yield Variant(
                f"finish, {bits} bit to {dtype}",
                finish.finish_kernel,
                {"FORM": form, "WIDE": wide, "STEPS": finish.STEPS},
                finish.WARPS,
                values | {"out": pointer},
                "both",
            )
    for dtype, (pointer, form) in _OUT.items():
        yield Variant(
            f"resize, 8 bit to {dtype}",
            resize.resize_kernel,
            {"SAMPLE": 0, "FORM": form, "ROWS": resize.ROWS, "COLUMNS": resize.COLUMNS},
            resize.WARPS,
            {"source": "*u8", "out": pointer},
            "both",
        )
