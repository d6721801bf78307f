# SPDX-License-Identifier: Apache-2.0
"""`headrace decode`: `.hri` to PNG or NumPy files."""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import typer

import headrace
from headrace.cli.shared.conversion import ConvertedFile, convert_files
from headrace.cli.shared.options import Files, Force, MaxPixels, Output, Quiet, Workers
from headrace.errors import HeadraceError, UnsupportedImage
from headrace.files import read_file
from headrace.formats.foreign import read_picture
from headrace.formats.optional import require_imagecodecs

FileFormat: TypeAlias = Literal["png", "npy"]

_PNG_HEAD_BYTES = 8 + 25  # the signature and IHDR; chunks of metadata may follow directly


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

    16-bit images stay 16-bit (with several channels this needs the extra
    'imagecodecs'). ICC, EXIF and XMP metadata is written to the PNG; NumPy
    files hold pixels only.

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
        started = time.perf_counter()
        array = headrace.decode(data, max_pixels=max_pixels)
        codec_seconds = time.perf_counter() - started
        content = _encode_npy(array) if chosen == "npy" else encode_png(array, headrace.inspect(data).metadata)
        height, width = array.shape[:2]
        if verify:
            again = read_picture(content, f".{chosen}", max_pixels=height * width)
            if again.array.dtype != array.dtype or not np.array_equal(again.array, array):
                raise HeadraceError("the written file does not have the same pixels; please report this image")
        return ConvertedFile(content, height * width, len(data), codec_seconds)

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
    channels = 1 if array.ndim == 2 else array.shape[2]
    if channels > 4 or array.dtype.name not in {"uint8", "uint16"}:
        raise UnsupportedImage(
            f"PNG must have 1 to 4 channels of uint8 or uint16; the image has {channels} of {array.dtype.name}: "
            "use --to npy"
        )
    if array.dtype.itemsize == 2 and channels > 1:
        png = bytes(require_imagecodecs("to write 16-bit PNG with several channels").png_encode(array, level=6))
    else:
        from PIL import Image  # noqa: PLC0415 - slow to import

        file = io.BytesIO()
        Image.fromarray(array).save(file, "PNG")
        png = file.getvalue()
    chunks = b""
    if "icc" in metadata:
        chunks += _chunk(b"iCCP", b"ICC Profile\0\0" + zlib.compress(metadata["icc"]))
    if "exif" in metadata:
        chunks += _chunk(b"eXIf", metadata["exif"])
    if "xmp" in metadata:
        chunks += _chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + metadata["xmp"])
    return png[:_PNG_HEAD_BYTES] + chunks + png[_PNG_HEAD_BYTES:]


def _chunk(name: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")
