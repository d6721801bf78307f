# SPDX-License-Identifier: Apache-2.0
"""Measure lossless image codecs side by side: `python benchmarks/codec.py [FOLDER…]`, `--help` for more.

One process on one pinned core, process CPU time, codecs interleaved image by image, best of 7; the pixels of every
lossless codec are verified. docs/benchmarks/codec.md says more.
"""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from PIL import features
from rich.console import Console
from rich.markup import escape

import headrace
from benchmarks import machine, results
from benchmarks._codec import extras, peers, report
from benchmarks._codec import png as png_files
from benchmarks._codec.contract import Codec
from benchmarks._codec.images import CONVERSIONS, ImageSet, Pixels, bundled_sets, folder_set, load
from benchmarks._codec.race import NotLossless, race
from benchmarks._codec.timing import Effort

if TYPE_CHECKING:
    from benchmarks._codec.totals import Row

QUICK_IMAGES = 3
QUICK_EFFORT = Effort(rounds=2, slow_rounds=1)

_LIBRARIES = (
    *("numpy", "pillow", "imagecodecs", "pyspng", "simplejpeg"),
    *("opencv-python-headless", "deflate", "isal", "zlib-ng"),
)

_IMAGECODECS_LIBRARIES = ("libpng", "zlib", "qoi", "libwebp", "libjxl", "charls", "openjph", "zstd", "lz4")


def main(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders of images (default: scikit-image's photographs).")
    ] = None,
    *,
    only: Annotated[str, typer.Option(help="Codecs to measure, comma-separated; PNG is always measured.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the best counts.")] = 7,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two rounds on three images per folder: shows that it runs.")
    ] = False,
    regions: Annotated[bool, typer.Option("--regions", help="Also measure random 256x256 regions.")] = False,
    threads: Annotated[bool, typer.Option("--threads", help="Also measure two threads, by wall-clock time.")] = False,
    png: Annotated[
        bool, typer.Option("--png", help="Also decode the PNG files of the folders as they are, with other decoders.")
    ] = False,
    target: Annotated[str | None, typer.Option(help="SIMD target that Headrace must use.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to this JSON file.")] = None,
) -> None:
    """Measure lossless image codecs side by side, on one core, by CPU time."""
    console, log = Console(), Console(stderr=True)
    try:
        sets = [folder_set(folder) for folder in folders] if folders else bundled_sets()
        codecs, notes = peers.available()
        codecs = peers.choose(codecs, [name for name in only.split(",") if name])
        effort = QUICK_EFFORT if quick else Effort(rounds=rounds)
        switches = {"--quick": quick, "--regions": regions, "--threads": threads, "--png": png}
        valued = {"--only": only, "--rounds": "" if rounds == Effort.rounds else rounds, "--target": target}
        for note in notes:
            log.print(note, style="yellow", highlight=False)
        if target is not None:
            headrace.codec.use_target(target)
        document = results.frame("codec", _command(folders or [], switches, valued), _LIBRARIES)
        document["libraries"] |= _bundled_libraries()
        document["flags"] = {"rounds": effort.rounds, "span_seconds": effort.span_seconds, "clock": "process CPU time"}
        document["sets"] = []
        cores = machine.usable_cores()
        document["flags"] |= {"pinned": machine.pin(cores[-1:]), "freed_memory_kept": machine.keep_freed_memory()}
        for image_set in sets:
            chosen = image_set.first(QUICK_IMAGES) if quick else image_set
            measured = _measure(chosen, codecs, effort, log)
            document["sets"].append(measured)
            console.print(report.set_table(measured).rich())
            if regions:
                measured["regions"] = extras.regions(_images(chosen), effort)
                console.print(report.region_table(measured).rich())
            if threads:
                measured["threads"] = extras.threads(_images(chosen), effort, cores)
                console.print(report.thread_table(measured).rich())
            if png:
                measured["png"] = png_files.measure(chosen, effort)
                for table in png_files.tables(measured):
                    console.print(table.rich())
            if output is not None:  # after every set: an interrupted run keeps what it has
                results.write(output, document)
    except (ImportError, NotLossless, OSError, ValueError) as error:
        log.print("[bold red]error:[/]", escape(str(error)), highlight=False)
        raise typer.Exit(1) from None
    console.print(CONVERSIONS)
    console.print(results.provenance(document), highlight=False)


def _measure(image_set: ImageSet, codecs: list[Codec], effort: Effort, log: Console) -> dict[str, Any]:
    rows: list[Row] = []
    references: dict[str, str | None] = {}
    failed: dict[str, list[str]] = defaultdict(list)
    # No live progress bar: the CPU time of its thread would count as the codecs'.
    for index, (name, pixels) in enumerate(_images(image_set), start=1):
        log.print(f"{image_set.name} {index}/{len(image_set.files)} {name}", style="dim", markup=False, highlight=False)
        references[name] = peers.reference_for(pixels, codecs)
        raced, not_lossless = race(name, pixels, codecs, effort)
        rows += raced
        for codec_name in not_lossless:
            failed[codec_name].append(name)
    return report.set_document(
        name=image_set.name,
        sha256=image_set.sha256(),
        codecs=codecs,
        rows=rows,
        references=references,
        failed=failed,
    )


def _images(image_set: ImageSet) -> Iterator[tuple[str, Pixels]]:
    for file in image_set.files:
        yield image_set.label(file), load(file)


def _command(folders: list[Path], switches: Mapping[str, bool], valued: Mapping[str, object]) -> str:
    """Return the command line, with folders by name instead of by path."""
    words = ["python benchmarks/codec.py", *(folder.resolve().name for folder in folders)]
    words += [switch for switch, given in switches.items() if given]
    words += [f"{option} {value}" for option, value in valued.items() if value]
    return " ".join(words)


def _bundled_libraries() -> dict[str, str | None]:
    """Return the versions of the C libraries inside the wheels, which decide the speed of the peers."""
    zlib_ng = features.version_feature("zlib_ng") if features.check_feature("zlib_ng") else None
    found = {"pillow zlib": features.version_codec("zlib"), "pillow zlib-ng": zlib_ng}
    try:
        imagecodecs = importlib.import_module("imagecodecs")
    except ImportError:
        return found
    versions = dict(part.rsplit("-", 1) for part in imagecodecs.version().split(", "))
    return found | {f"imagecodecs {name}": versions.get(name) for name in _IMAGECODECS_LIBRARIES}


if __name__ == "__main__":
    typer.run(main)
