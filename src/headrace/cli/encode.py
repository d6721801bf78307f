# SPDX-License-Identifier: Apache-2.0
"""`headrace encode`: image files to `.hri`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

import headrace
from headrace.cli.shared.conversion import ConvertedFile, convert_files
from headrace.cli.shared.options import Files, Force, MaxPixels, Output, Quiet, Workers
from headrace.errors import HeadraceError
from headrace.files import read_file
from headrace.formats.foreign import read_picture, readable_suffixes


def encode(
    inputs: Files,
    output: Output = None,
    mode: Annotated[
        Literal["dense", "fast"], typer.Option(help="dense makes smaller files, fast decodes faster.")
    ] = "dense",
    workers: Workers = 0,
    force: Force = False,
    verify: Annotated[bool, typer.Option("--verify", help="Decode each result and compare the pixels.")] = False,
    max_pixels: MaxPixels = 2**30,
    quiet: Quiet = False,
) -> None:
    """Encode images losslessly as .hri.

    Reads every format that Pillow reads, and NumPy's .npy. With the extra
    'imagecodecs' also JPEG XL, JPEG 2000, AVIF, 16-bit RGB TIFF and more. All
    bits are kept: an image that could only be read with 8 bits is an error.
    ICC, EXIF and XMP metadata is kept; EXIF orientation is not applied.

    If a file cannot be encoded, it is reported, the others are still encoded,
    and the exit code is 1.

    \b
    headrace encode photo.png                   writes photo.hri
    headrace encode photos -o photos-hri        all images of a folder
    headrace encode 'scans/**/*.tif' --verify   a glob; compare each result
    headrace encode photos --mode fast -j 4     four files in parallel
    """

    def convert(source: Path) -> ConvertedFile:
        data = read_file(source)
        picture = read_picture(data, source.suffix, max_pixels=max_pixels)
        encoded = headrace.encode(picture.array, mode=mode, metadata=picture.metadata)
        height, width = picture.array.shape[:2]
        if verify:
            decoded = headrace.decode(encoded, max_pixels=height * width)
            if not np.array_equal(decoded, picture.array.reshape(decoded.shape)):
                raise HeadraceError("the encoded image does not decode to the same pixels; please report this image")
        return ConvertedFile(encoded, height * width, len(data))

    convert_files(
        inputs,
        output,
        convert,
        suffixes=readable_suffixes(),
        suffix=".hri",
        verb="encoded",
        workers=workers,
        force=force,
        quiet=quiet,
    )
