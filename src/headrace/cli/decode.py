# SPDX-License-Identifier: Apache-2.0
"""`headrace decode`: `.hri` to PNG or NumPy files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import typer

import headrace
from headrace import formats
from headrace.cli.shared.conversion import ConvertedFile, convert_files
from headrace.cli.shared.options import Files, Force, MaxPixels, Output, Quiet, Workers
from headrace.errors import HeadraceError, UnsupportedImage
from headrace.files import read_file
from headrace.formats.foreign import read_picture

FileFormat: TypeAlias = Literal["png", "npy"]


def decode(
    inputs: Files,
    output: Output = None,
    to: Annotated[
        FileFormat | None,
        typer.Option(
            help="Format of the results: png, or npy (NumPy) for images that PNG cannot hold.",
            show_default="the suffix of --output, or png",
        ),
    ] = None,
    workers: Workers = 0,
    force: Force = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read each result again and compare the pixels.")] = False,
    max_pixels: MaxPixels = 2**30,
    quiet: Quiet = False,
) -> None:
    """Decode .hri images to PNG or NumPy files.

    16-bit images stay 16-bit. ICC, EXIF and XMP metadata is written to the
    PNG; NumPy files hold pixels only.

    If a file is damaged, it is reported, the others are still decoded, and
    the exit code is 1.

    \b
    headrace decode photo.hri                   writes photo.png
    headrace decode photos-hri -o photos        all images of a folder
    headrace decode scan.hri -o scan.npy        any dtype, any number of channels
    """
    chosen: FileFormat = to or ("npy" if output is not None and output.suffix.lower() == ".npy" else "png")

    def convert(source: Path) -> ConvertedFile:
        data = read_file(source)
        array = headrace.decode(data, max_pixels=max_pixels)
        content = _encode_npy(array) if chosen == "npy" else encode_png(array, headrace.inspect(data).metadata)
        height, width = array.shape[:2]
        if verify:
            again = read_picture(content, f".{chosen}", max_pixels=height * width)
            if again.array.dtype != array.dtype or not np.array_equal(again.array, array):
                raise HeadraceError("the written file does not have the same pixels; please report this image")
        return ConvertedFile(content, height * width, len(data))

    convert_files(
        inputs,
        output,
        convert,
        suffixes={".hri"},
        suffix=f".{chosen}",
        verb="decoded",
        workers=workers,
        force=force,
        quiet=quiet,
    )


def _encode_npy(array: npt.NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def encode_png(array: npt.NDArray[Any], metadata: Mapping[str, bytes]) -> bytes:
    """Encode an image as PNG with its ICC, EXIF and XMP blocks; other metadata is dropped."""
    blocks = {name: block for name, block in metadata.items() if name != "color"}
    try:
        return formats.get("png").encode(array, metadata=blocks)
    except UnsupportedImage as error:
        raise UnsupportedImage(f"{error}; or write a NumPy file with --to npy") from None
