# SPDX-License-Identifier: Apache-2.0
"""`headrace inspect`: size, dtype, mode and metadata of `.hri` files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace
from headrace.cli import _batch
from headrace.cli._files import find_files
from headrace.cli._options import MaxPixels
from headrace.cli._say import cell, say
from headrace.errors import HeadraceError
from headrace.files import read_file
from headrace.units import bytes_text


def inspect(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders or quoted globs.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also decode every tile, to find damage anywhere in the file.")
    ] = False,
    max_pixels: MaxPixels = 2**30,
) -> None:
    """Show size, type, mode and metadata of .hri images.

    The checksum of the header is always verified. With --verify, tiles are decoded
    too, a few at a time, so large images need little memory. If a file is damaged,
    it is named and the exit code is 1.

    \b
    headrace inspect photo.hri
    headrace inspect photos-hri --verify
    headrace inspect photos-hri --json | jq .n_bytes
    """
    failed = False
    rows: list[dict[str, Any]] = []
    for path, base in find_files(inputs, {".hri"}):
        try:
            if isinstance(base, str):
                raise FileNotFoundError(base)
            row = _describe(path, verify=verify, max_pixels=max_pixels)
        except (HeadraceError, OSError) as error:
            failed = True
            say(f"failed {path}: {type(error).__name__}: {error}", err=True)
            continue
        if as_json:
            typer.echo(json.dumps(row))
        rows.append(row)
    if rows and not as_json:
        _show_table(rows)
    if failed:
        raise typer.Exit(_batch.FAILED)


def _describe(path: Path, *, verify: bool, max_pixels: int) -> dict[str, Any]:
    encoded = read_file(path)
    head = headrace.inspect(encoded)
    if verify:
        headrace.codec.verify(encoded, max_pixels=max_pixels, threads=0)
    raw_bytes = math.prod(head.shape) * head.dtype.itemsize
    return {
        "file": str(path),
        "shape": list(head.shape),
        "dtype": head.dtype.name,
        "mode": head.mode,
        "tile_shape": list(head.tile_shape),
        "n_bytes": head.n_bytes,
        "bits_per_pixel": round(8 * head.n_bytes / (head.height * head.width), 3),
        "ratio_to_raw": round(head.n_bytes / raw_bytes, 4),
        "metadata": {key: len(value) for key, value in head.metadata.items()},
    }


def _show_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.table import Table  # noqa: PLC0415 - slow to import

    table = Table("file", "shape", "dtype", "mode", "tile", "bytes", "bits/pixel", "of raw", "metadata", box=None)
    for row in rows:
        table.add_row(
            cell(row["file"]),
            " x ".join(map(str, row["shape"])),
            row["dtype"],
            row["mode"],
            " x ".join(map(str, row["tile_shape"])),
            str(row["n_bytes"]),
            f"{row['bits_per_pixel']:.2f}",
            f"{row['ratio_to_raw']:.3f}",
            cell(", ".join(f"{key} ({bytes_text(size)})" for key, size in row["metadata"].items())),
        )
    # Piped into a file a table has no width to fit, and nothing is cut off.
    console = Console()
    if not console.is_terminal:
        console = Console(width=1000)
    console.print(table)
