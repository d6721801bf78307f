# SPDX-License-Identifier: Apache-2.0
"""`headrace encode`: image files to `.hri`."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import numpy as np
import typer

import headrace
from headrace.cli import _batch
from headrace.cli._files import Task, plan_tasks, write_whole
from headrace.cli._options import Force, MaxPixels, Output, Workers
from headrace.cli._pictures import read_picture, readable_suffixes
from headrace.errors import HeadraceError
from headrace.files import read_file
from headrace.terminal import printable


def encode(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders or quoted globs.", show_default=False)],
    output: Output = None,
    mode: Annotated[
        Literal["dense", "fast"], typer.Option(help="dense: fewer bytes. fast: quicker to decode.")
    ] = "dense",
    workers: Workers = 0,
    force: Force = False,
    verify: Annotated[bool, typer.Option("--verify", help="Decode each result again and compare.")] = False,
    max_pixels: MaxPixels = 2**30,
) -> None:
    """Encode images losslessly as .hri.

    Reads what Pillow reads, and with the extra 'imagecodecs' also 16 bit
    RGB, JPEG XL, JPEG 2000, AVIF and more; NumPy's .npy too. Every bit is
    kept: a file that would be reduced to 8 bit is refused by name. ICC,
    EXIF and XMP are carried along; EXIF orientation is not applied.

    A damaged input is named and skipped, and the exit code is then 1.

    \b
    headrace encode photo.png                   writes photo.hri
    headrace encode photos -o photos-hri        a whole folder
    headrace encode 'scans/**/*.tif' --verify   a glob, each result compared
    headrace encode photos --mode fast -j 4     four at a time
    """

    def work(task: Task) -> _batch.Done:
        return _encode_file(task, mode=mode, force=force, verify=verify, max_pixels=max_pixels)

    try:
        tasks = plan_tasks(inputs, output, suffixes=readable_suffixes(), suffix=".hri", force=force)
    except ValueError as error:
        raise typer.BadParameter(printable(error), param_hint="--output") from None
    _batch.run(tasks, work, verb="encoded", workers=workers)


def _encode_file(
    task: Task, *, mode: Literal["dense", "fast"], force: bool, verify: bool, max_pixels: int
) -> _batch.Done:
    source = read_file(task.source)
    picture = read_picture(source, task.source.suffix, max_pixels=max_pixels)
    started = time.perf_counter()
    encoded = headrace.encode(picture.array, mode=mode, metadata=picture.metadata)
    codec_seconds = time.perf_counter() - started
    height, width = picture.array.shape[:2]
    if verify:
        decoded = headrace.decode(encoded, max_pixels=height * width)
        if not np.array_equal(decoded, picture.array.reshape(decoded.shape)):
            raise HeadraceError("what was encoded does not decode to the same pixels; please report this image")
    write_whole(task.target, encoded, force=force)
    return _batch.Done(height * width, len(source), len(encoded), codec_seconds)
