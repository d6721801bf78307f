# SPDX-License-Identifier: Apache-2.0
"""Encode photographs, decode them and compare with PNG: `make demo`, or `make demo IMAGES=folder`.

Without a folder it takes the photographs inside scikit-image. benchmarks/codec.py measures the same with more care.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image
from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

import headrace

if TYPE_CHECKING:
    from collections.abc import Callable

PHOTOGRAPHS = "astronaut brick camera chelsea coffee grass gravel hubble_deep_field ihc moon motorcycle_left rocket"
SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
BUDGET_SECONDS = 40
ROUNDS = 3


@dataclass
class Cost:
    """What one codec needs for an image, or for many: bytes, and seconds of CPU."""

    size: int = 0
    decode: float = 0.0
    encode: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.size + other.size, self.decode + other.decode, self.encode + other.encode)


def find(folder: str | None) -> list[Path]:
    """The images of a folder, or the photographs that scikit-image carries with it."""
    if folder is not None:
        if not Path(folder).is_dir():
            sys.exit(f"{folder} is not a folder: name one with images, or none for scikit-image's photographs")
        files = sorted(file for file in Path(folder).rglob("*") if file.suffix.lower() in SUFFIXES)
    else:
        package = importlib.util.find_spec("skimage")
        if package is None or package.origin is None:
            sys.exit("scikit-image is not installed: `pip install scikit-image`, or `make demo IMAGES=folder`")
        inside = Path(package.origin).parent / "data"
        files = [file for name in PHOTOGRAPHS.split() for file in sorted(inside.glob(f"{name}.*"))]
    return files or sys.exit(f"no image here ({', '.join(sorted(SUFFIXES))}): name another folder")


def read(file: Path) -> Image.Image:
    """Read an image as it is stored; palettes become colours."""
    with Image.open(file) as image:
        if image.mode != "I;16" and any("16" in str(tile.args) for tile in image.tile):
            raise ValueError("16-bit colour, which Pillow would round to 8 bit; `headrace encode` keeps it")
        plain = {"1": "L", "P": "RGBA" if "transparency" in image.info else "RGB"}
        return image.convert(plain.get(image.mode, image.mode))


def best(call: Callable[[], Any]) -> tuple[Any, float]:
    """What the call returns, and the CPU time of its fastest round."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        result = call()
        seconds.append(time.process_time() - start)
    return result, min(seconds)


def measure_png(image: Image.Image) -> Cost:
    """Pillow's PNG at its usual level."""

    def encode() -> bytes:
        stream = io.BytesIO()
        image.save(stream, "PNG", compress_level=6)
        return stream.getvalue()

    file, encode_seconds = best(encode)
    _, decode_seconds = best(lambda: Image.open(io.BytesIO(file)).load())
    return Cost(len(file), decode_seconds, encode_seconds)


def measure_headrace(name: str, pixels: np.ndarray[Any, Any], mode: Literal["fast", "dense"]) -> Cost:
    """One mode of `.hri`, proven lossless before it is timed."""
    file, encode_seconds = best(lambda: headrace.encode(pixels, mode=mode))
    out = np.zeros_like(pixels)
    if not np.array_equal(headrace.decode(file, out=out), pixels):
        sys.exit(f"hri:{mode} changed the pixels of {name}: please report it, with the file")
    _, decode_seconds = best(lambda: headrace.decode(file, out=out))
    return Cost(len(file), decode_seconds, encode_seconds)


def grid(title: str, *columns: str) -> Table:
    """An empty table: names to the left, figures to the right."""
    table = Table(title=title, title_style="bold", title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True, max_width=20)
    return table


def summary(sums: dict[str, Cost]) -> Table:
    """All images together, beside PNG."""
    table = grid("Altogether", "", "kB", "of PNG", "decode ms", "x PNG", "encode ms", "x PNG")
    png = sums["PNG"]
    for name, cost in sums.items():
        decode = f"{cost.decode * 1e3:.1f}", f"{png.decode / cost.decode:.1f}x"
        encode = f"{cost.encode * 1e3:.1f}", f"{png.encode / cost.encode:.1f}x"
        table.add_row(name, f"{cost.size / 1e3:.0f}", f"{cost.size / png.size:.3f}", *decode, *encode)
    return table


def main() -> None:
    """Print a line for each image as it is measured, then the sums."""
    files = find(sys.argv[1] if len(sys.argv) > 1 else None)
    console = Console()
    console.print(f"Headrace {headrace.__version__}, target {headrace.codec.active_target()}, one thread, CPU time")
    columns = ("image", "PNG\nkB", "fast\nof PNG", "dense\nof PNG", "PNG\nms", "fast\nms", "dense\nms", "pixels")
    lines = grid("Bytes as a share of PNG's, decode times, and whether all pixels came back", *columns)
    sums = {"PNG": Cost(), "hri:fast": Cost(), "hri:dense": Cost()}
    # Without a refreshing thread, whose CPU time would be counted.
    with Live(lines, console=console, auto_refresh=False) as live:
        for file in files:
            if time.process_time() > BUDGET_SECONDS:
                console.print("enough for a demo; benchmarks/codec.py takes every image", style="yellow")
                break
            try:
                image = read(file)
                pixels = np.asarray(image)
                ours = [measure_headrace(file.name, pixels, "fast"), measure_headrace(file.name, pixels, "dense")]
                costs = [measure_png(image), *ours]
            except (OSError, ValueError) as error:
                console.print(f"skipped {file.name}: {error}", style="yellow", markup=False, highlight=False)
                continue
            sums = {name: cost + more for (name, cost), more in zip(sums.items(), costs, strict=True)}
            shares = [f"{cost.size / costs[0].size:.3f}" for cost in costs[1:]]
            times = [f"{cost.decode * 1e3:.2f}" for cost in costs]
            lines.add_row(escape(file.stem), f"{costs[0].size / 1e3:.0f}", *shares, *times, "[green]same[/]")
            live.refresh()
    console.print()
    if not sums["PNG"].size:
        sys.exit("none of these files could be compared: name another folder")
    console.print(summary(sums))


if __name__ == "__main__":
    main()
