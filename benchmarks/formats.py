# SPDX-License-Identifier: Apache-2.0
"""Measure the libraries that read and write PNG, JPEG and WebP: `python benchmarks/formats.py [FOLDER…]`.

It is how the decoders of `headrace.formats` were chosen. One process on one pinned core, process CPU time, libraries in
turn image by image; files of a format are taken as they are, others are encoded first. `same` says whether the
pixels equal the reference (the original, or our own for JPEG); `cut` what becomes of a file that lacks its last third;
`GIL` whether another thread gets to run meanwhile.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import typer
from rich.console import Console

from benchmarks import machine, results
from benchmarks._codec.images import ImageSet, bundled_sets, folder_set, load
from benchmarks._codec.timing import Contender, Effort, take_turns
from benchmarks._formats.libraries import Pixels, decoders, encoders
from benchmarks.tables import NOTHING, Table, figures, times
from headrace import formats
from headrace.errors import UnsupportedImage

LIBRARIES = ("numpy", "pillow", "imagecodecs", "opencv-python-headless", "pyspng", "simplejpeg")
REFERENCE = "pillow"
_FORMATS = ("png", "jpeg", "webp")

Row = dict[str, Any]


def main(
    folders: Annotated[list[Path] | None, typer.Argument(help="Folders of images. Default: scikit-image's.")] = None,
    *,
    only: Annotated[str, typer.Option(help="Comma-separated formats.")] = ",".join(_FORMATS),
    limit: Annotated[int, typer.Option(min=1, help="At most so many images of a folder.")] = 12,
    rounds: Annotated[int, typer.Option(min=1, help="Best of how many rounds.")] = 5,
    encode: Annotated[bool, typer.Option(help="Measure encoders too.")] = True,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
) -> None:
    """Measure the libraries that read and write PNG, JPEG and WebP, on one core, by CPU time."""
    console = Console()
    cores = machine.usable_cores()
    effort = Effort(rounds=rounds)
    document: Row = {
        "benchmark": "formats",
        "machine": machine.describe(),
        "libraries": machine.library_versions(LIBRARIES),
        "commit": machine.commit(),
        "freed_memory_kept": machine.keep_freed_memory(),
        "rows": [],
    }
    for image_set in [folder_set(folder) for folder in folders] if folders else bundled_sets():
        for name in only.split(","):
            images = list(_encoded(image_set.first(limit), name))
            if not images:
                continue
            rows = _measure_decoders(name, images, effort, cores)
            if encode:
                rows += _measure_encoders(name, [pixels for pixels, _ in images], effort, cores)
            rows = [{"set": image_set.name, "images": len(images), "format": name} | row for row in rows]
            document["rows"] += rows
            console.print(_table(image_set.name, name, rows).rich())
    if output is not None:
        results.write(output, document)


def _encoded(image_set: ImageSet, name: str) -> Iterator[tuple[Pixels, bytes]]:
    """Pixels and file of each image that the format can hold; a JPEG is only measured as the JPEG that it is."""
    chosen = formats.get(name)
    for path in image_set.files:
        contents = path.read_bytes()
        if formats.sniff(contents) == name and chosen.probe(contents).channels != 2:
            yield chosen.decode(contents), contents
            continue
        pixels = load(path)
        try:
            contents = chosen.encode(pixels, mode="90" if name == "jpeg" else None)
        except UnsupportedImage:
            continue
        yield chosen.decode(contents) if name == "jpeg" else pixels, contents


def _measure_decoders(name: str, images: list[tuple[Pixels, bytes]], effort: Effort, cores: list[int]) -> list[Row]:
    seconds: dict[str, float] = defaultdict(float)
    same: dict[str, bool] = defaultdict(lambda: True)
    cut: dict[str, str] = {}
    gil: dict[str, str] = {}
    for number, (pixels, contents) in enumerate(images):
        found = decoders(name, formats.get(name).probe(contents))
        contenders = {}
        for library, decode in found.items():
            try:
                decoded = decode(contents)
            except Exception:  # noqa: BLE001 - a library that cannot is out of the race for this set
                same[library] = False
                continue
            same[library] &= decoded.dtype == pixels.dtype and np.array_equal(decoded, pixels)
            contenders[library] = Contender(_call(decode, contents), effort)
        machine.pin(cores[-1:])
        take_turns(list(contenders.values()))
        machine.pin(cores)
        for library, contender in contenders.items():
            seconds[library] += contender.best
            if number == 0:
                cut[library] = _fate(found[library], contents[: len(contents) * 2 // 3])
                gil[library] = _gil(found[library], contents)
    megapixels = _megapixels([pixels for pixels, _ in images])
    return [
        _row("decode", library, megapixels, seconds, same) | {"cut": cut.get(library), "gil": gil.get(library)}
        for library in same
    ]


def _measure_encoders(name: str, images: list[Pixels], effort: Effort, cores: list[int]) -> list[Row]:
    seconds: dict[str, float] = defaultdict(float)
    n_bytes: dict[str, int] = defaultdict(int)
    able: dict[str, bool] = defaultdict(lambda: True)
    machine.pin(cores[-1:])
    for pixels in images:
        contenders = {}
        for library, encode in encoders(name).items():
            try:
                contents = encode(pixels)
                able[library] &= name == "jpeg" or np.array_equal(formats.get(name).decode(contents), pixels)
            except Exception:  # noqa: BLE001 - a library that cannot is out of the race for this set
                able[library] = False
                continue
            n_bytes[library] += len(contents)
            contenders[library] = Contender(_call(encode, pixels), effort)
            contenders[library].rounds = min(effort.rounds, 2)
        take_turns(list(contenders.values()))
        for library, contender in contenders.items():
            seconds[library] += contender.best
    machine.pin(cores)
    return [
        _row("encode", library, _megapixels(images), seconds, able)
        | {"bytes": n_bytes[library] if able[library] else None}
        for library in able
    ]


def _row(do: str, library: str, megapixels: float, seconds: dict[str, float], same: dict[str, bool]) -> Row:
    """A library's speed, if it was right; and the ratio to the reference, if that was right too."""
    rate = megapixels / seconds[library] if same[library] else None
    ratio = seconds[REFERENCE] / seconds[library] if same[library] and same[REFERENCE] else None
    return {"do": do, "library": library, "megapixels_a_second": rate, "ratio": ratio, "same": same[library]}


def _call(function: Callable[[Any], Any], argument: Any) -> Callable[[], Any]:
    return lambda: function(argument)


def _fate(decode: Callable[[bytes], Pixels], contents: bytes) -> str:
    try:
        decode(contents)
    except Exception:  # noqa: BLE001 - that it raises is the finding
        return "raises"
    return "accepts"


def _gil(decode: Callable[[bytes], Pixels], contents: bytes) -> str:
    """Whether a thread that waits for the GIL gets it while another decodes and nobody is forced to yield."""
    begun = threading.Event()
    ran: list[float] = []

    def wait_and_run() -> None:
        begun.wait()
        ran.append(time.perf_counter())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        waiting = threading.Thread(target=wait_and_run)
        waiting.start()
        begun.set()
        for _ in range(20):
            decode(contents)
        end = time.perf_counter()
    finally:
        sys.setswitchinterval(interval)
    waiting.join()
    return "free" if ran[0] < end else "held"


def _megapixels(images: list[Pixels]) -> float:
    return sum(pixels.shape[0] * pixels.shape[1] for pixels in images) / 1e6


def _table(set_name: str, name: str, rows: list[Row]) -> Table:
    cells = [
        [
            f"{row['do']}: {row['library']}",
            figures(row["megapixels_a_second"]),
            times(row["ratio"]),
            "yes" if row["same"] else "no",
            row.get("cut") or NOTHING,
            row.get("gil") or NOTHING,
            NOTHING if row.get("bytes") is None else f"{row['bytes']:,}",
        ]
        for row in rows
    ]
    columns = ("library", "MP/s", "to Pillow", "same", "cut", "GIL", "bytes")
    return Table(columns, cells, title=f"{name}, {set_name}: {rows[0]['images']} images")


if __name__ == "__main__":
    typer.run(main)
