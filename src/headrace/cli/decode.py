# SPDX-License-Identifier: Apache-2.0
"""`headrace decode`: `.hri` to image files."""

from __future__ import annotations

import io
import time
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import typer

import headrace
from headrace.cli import _batch
from headrace.cli._files import Task, plan_tasks, write_whole
from headrace.cli._options import Force, MaxPixels, Output, Workers
from headrace.cli._pictures import read_picture
from headrace.cli._png import encode_png
from headrace.errors import HeadraceError
from headrace.files import read_file
from headrace.terminal import printable

FileFormat: TypeAlias = Literal["png", "npy"]


def decode(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders or quoted globs.", show_default=False)],
    output: Output = None,
    to: Annotated[
        FileFormat | None,
        typer.Option(
            help="png, or npy (NumPy's array files) for what PNG cannot hold. By default as --output ends, or png."
        ),
    ] = None,
    workers: Workers = 0,
    force: Force = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read each result again and compare.")] = False,
    max_pixels: MaxPixels = 2**30,
) -> None:
    """Decode .hri images to PNG or NumPy files.

    Depth is kept: 16 bit stays 16 bit (for several channels this needs the
    extra 'imagecodecs'). ICC, EXIF and XMP go into the PNG; NumPy files
    hold pixels alone.

    A damaged input is named and skipped, and the exit code is then 1.

    \b
    headrace decode photo.hri                   writes photo.png
    headrace decode photos-hri -o photos        a whole folder
    headrace decode scan.hri -o scan.npy        any depth, any channels
    """
    chosen: FileFormat = to or ("npy" if output is not None and output.suffix.lower() == ".npy" else "png")

    def work(task: Task) -> _batch.Done:
        return _decode_file(task, file_format=chosen, force=force, verify=verify, max_pixels=max_pixels)

    try:
        tasks = plan_tasks(inputs, output, suffixes={".hri"}, suffix=f".{chosen}", force=force)
    except ValueError as error:
        raise typer.BadParameter(printable(error), param_hint="--output") from None
    _batch.run(tasks, work, verb="decoded", workers=workers)


def _decode_file(task: Task, *, file_format: FileFormat, force: bool, verify: bool, max_pixels: int) -> _batch.Done:
    source = read_file(task.source)
    started = time.perf_counter()
    array = headrace.decode(source, max_pixels=max_pixels)
    codec_seconds = time.perf_counter() - started
    content = _encode_npy(array) if file_format == "npy" else encode_png(array, headrace.inspect(source).metadata)
    height, width = array.shape[:2]
    if verify:
        again = read_picture(content, f".{file_format}", max_pixels=height * width)
        if again.array.dtype != array.dtype or not np.array_equal(again.array, array):
            raise HeadraceError("what was written does not read back as the same pixels; please report this image")
    write_whole(task.target, content, force=force)
    return _batch.Done(height * width, len(source), len(content), codec_seconds)


def _encode_npy(array: npt.NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()
