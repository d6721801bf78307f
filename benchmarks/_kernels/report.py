# SPDX-License-Identifier: Apache-2.0
"""The tables of benchmarks/kernels.py, from the document that it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.tables import NOTHING, Table, figures

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_RUN = "Computed from the compiled code and published peaks. Not run: no such device was available."


def compile_tables(document: Mapping[str, Any]) -> list[Table]:
    """Return a table per target: registers, spills, shared memory and instructions of every kernel."""
    tables = []
    for target in document["targets"]:
        own = [row for row in document["kernels"] if row["target"] == target]
        keys = ("warps", "registers", "spills", "shared_bytes", "instructions")
        rows = [[row["kernel"], *(str(row[key]) for key in keys)] for row in own]
        columns = ("kernel", "warps", "registers", "spills", "shared bytes", "instructions")
        tables.append(Table(columns, rows, title=f"Compiled ahead of time for {target}"))
    return tables


def compile_summary(document: Mapping[str, Any]) -> Table:
    """Return the kernels of the fast path side by side, and the number of kernels that spill."""
    targets = document["targets"]
    cells: dict[str, dict[str, str]] = {}
    for row in document["kernels"]:
        if row["fast_path"]:
            figure = f"{row['registers']} / {row['shared_bytes']} / {row['instructions']}"
            cells.setdefault(row["kernel"], {})[row["target"]] = figure
    rows = [[name, *(own.get(target, NOTHING) for target in targets)] for name, own in cells.items()]
    spilling = sum(row["spills"] > 0 for row in document["kernels"])
    note = (
        "Registers per thread / bytes of shared memory per program / instructions. "
        f"Of all {len(document['kernels'])} compiled kernels, {spilling} spill registers."
    )
    return Table(("kernel", *targets), rows, title="The fast path, compiled ahead of time", notes=(note,))


def ceiling_table(document: Mapping[str, Any]) -> Table:
    """Return what each device could decode at most, and what its bus could deliver."""
    rows = [
        [
            f"{each['mode']} to {each['dtype']}, {each['device']['name'].split()[0]}",
            str(each["launches"]),
            figures(sum(kernel["bytes_per_pixel"] for kernel in each["kernels"])),
            figures(sum(kernel["instructions_per_pixel"]["issue"] for kernel in each["kernels"])),
            figures(each["gigapixels_per_second"]),
            figures(each["compressed_gbs"]),
            figures(each["device"]["bus_gbs"]),
            f"{figures(each['times_bus'])}x",
        ]
        for each in document["ceilings"]
    ]
    columns = ("decode", "launches", "bytes per pixel", "ops per pixel", "Gpixel/s", "GB/s in", "GB/s of bus", "ratio")
    sources = sorted({each["device"]["source"] for each in document["ceilings"]})
    return Table(columns, rows, title="Ceilings", notes=(NOT_RUN, *sources))


def arithmetic(document: Mapping[str, Any], mode: str = "fast", dtype: str = "float32") -> str:
    """Return the arithmetic of a mode's ceilings in words, one line per step."""
    lines = []
    for each in document["ceilings"]:
        if (each["mode"], each["dtype"]) != (mode, dtype):
            continue
        device = each["device"]
        lines.append(f"{device['name']}, mode {mode} to {dtype}:")
        for kernel in each["kernels"]:
            pipe = kernel["bound"]
            amount = (
                f"{kernel['bytes_per_pixel']:.2f} bytes at {device['memory_gbs']:.0f} GB/s"
                if pipe == "bandwidth"
                else f"{kernel['instructions_per_pixel'][pipe]:.1f} operations of the {pipe} pipe at "
                f"{32 * document['rates'][pipe]:.0f} x {device['multiprocessors']} SMs x {device['clock_ghz']} GHz"
            )
            lines.append(f"  {kernel['kernel']}: {amount} = {kernel['picoseconds_per_pixel']:.2f} ps per pixel")
        total = 1e3 / each["gigapixels_per_second"]
        rate, compressed = each["gigapixels_per_second"], each["compressed_bytes_per_pixel"]
        lines.append(f"  together {total:.2f} ps per pixel: {rate:.1f} Gpixel/s at most")
        lines.append(f"  times {compressed:.3f} compressed bytes per pixel: {each['compressed_gbs']:.1f} GB/s")
        lines.append(
            f"  {device['bus']} delivers {device['bus_gbs']:.1f} GB/s at most: {each['times_bus']:.2f} of that"
        )
    return "\n".join(lines)
