# SPDX-License-Identifier: Apache-2.0
"""Read image files of other formats with every bit they have, or say what is missing to do so.

Pillow reads most formats, and silently reduces some to 8 bit. Those are recognised before a pixel is decoded and
given to imagecodecs, an optional package.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import formats
from headrace.errors import ImageTooLarge, UnsupportedImage
from headrace.formats import deep
from headrace.formats.deep import require_imagecodecs

__all__ = ["Picture", "read_picture", "readable_suffixes", "require_imagecodecs"]

if TYPE_CHECKING:
    import numpy.typing as npt
    from PIL import ImageFile

# Pillow gives 8 bit of these whatever they hold, and does not say what they held.
_REDUCED_BY_PILLOW = {"AVIF": "avif", "JPEG2000": "jpeg2k"}
# These need other programs, or are documents rather than images.
_NOT_IMAGES = {"BUFR", "EPS", "FPX", "GRIB", "HDF5", "HRI", "MPEG", "WMF"}


@dataclass(frozen=True, slots=True)
class Picture:
    """Pixels and the metadata blocks that came with them."""

    array: npt.NDArray[Any]
    metadata: dict[str, bytes]


def readable_suffixes() -> frozenset[str]:
    """The suffixes to look for in folders."""
    from PIL import Image  # noqa: PLC0415 - slow to import

    pillow = {s for s, name in Image.registered_extensions().items() if name in Image.OPEN and name not in _NOT_IMAGES}
    return frozenset(pillow | deep.SUFFIXES.keys() | {".npy"})


def read_picture(data: bytes, suffix: str, *, max_pixels: int) -> Picture:
    """Decode an image file, given whole; `suffix` matters only for what its bytes do not tell."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - slow to import

    from headrace.codec import pillow  # noqa: PLC0415 - imports Pillow

    if data.startswith(b"\x93NUMPY"):
        return Picture(deep.load_npy(data, max_pixels=max_pixels), {})
    try:
        # The limit is ours: Pillow's own is a global of the process, and warns.
        Image.MAX_IMAGE_PIXELS = None
        image = Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        codec = deep.sniff(memoryview(data)) or deep.SUFFIXES.get(suffix.lower())
        if codec is None:
            raise UnsupportedImage("no reader of Pillow's or imagecodecs' knows this file, or it is damaged") from None
        return Picture(_read_deep(codec, data, max_pixels, f"to read {suffix} files"), {})
    with image:
        _check_image(image, data, max_pixels)
        codec = _deep_codec(image)
        if codec is not None:
            array = _read_deep(codec, data, max_pixels, f"to read this {image.format} file with all its bits")
            if b"eXIf" in data:
                image.load()  # EXIF may come after the pixels of a PNG
        elif image.format == "PPM" and image.mode == "I":
            array = np.asarray(image).astype(np.uint16)  # 16 bit gray, widened by Pillow
        else:
            array = pillow.to_array(image)
        return Picture(array, pillow.metadata_of(image))


def _read_deep(codec: str, data: bytes, max_pixels: int, purpose: str) -> npt.NDArray[Any]:
    if formats.has_more_pages(data):
        raise UnsupportedImage("the file holds several pages, and an .hri holds one; save each page as its own file")
    return deep.decode(codec, memoryview(data), max_pixels=max_pixels, purpose=purpose)


def _check_image(image: ImageFile.ImageFile, data: bytes, max_pixels: int) -> None:
    if image.format == "HRI":
        raise UnsupportedImage("this is an .hri image already; headrace decode reads it")
    if image.width * image.height > max_pixels:
        raise ImageTooLarge(
            f"{image.height} x {image.width} are more than {max_pixels} pixels; raise --max-pixels if you trust it"
        )
    # An MPO is a photograph with previews or a second view: its first frame is the photograph.
    # A TIFF may have smaller copies of its one page.
    is_animated = getattr(image, "is_animated", False) and image.format != "MPO"
    if is_animated and (image.format != "TIFF" or formats.has_more_pages(data)):
        raise UnsupportedImage(f"the file holds {getattr(image, 'n_frames', 'several')} frames, and an .hri holds one")


def _deep_codec(image: ImageFile.ImageFile) -> str | None:
    """The codec of imagecodecs that keeps what Pillow would lose of this opened image; None if it loses nothing."""
    if image.format in _REDUCED_BY_PILLOW:
        return _REDUCED_BY_PILLOW[image.format]
    decoder, rawmode, last = _pillow_decoder(image)
    if decoder.startswith("ppm") and last not in (255, 65535):
        raise UnsupportedImage(f"a largest value of {last} would be rescaled by the reader; store 255 or 65535")
    if image.format == "TIFF" and "X" in rawmode:
        return "tiff"  # Pillow would drop the bands that it does not know
    is_deep = re.search(r";1[0-6]", rawmode) is not None and not image.mode.startswith("I;16")
    if not is_deep or (image.format == "PPM" and image.mode == "I"):
        return None
    if image.format in {"PNG", "TIFF"} and image.mode in {"I", "L", "LA", "RGB", "RGBA"}:
        return str(image.format).lower()
    raise UnsupportedImage(
        f"Pillow would reduce this {image.format} file ({rawmode}) to 8 bit; store it as PNG or TIFF"
    )


def _pillow_decoder(image: ImageFile.ImageFile) -> tuple[str, str, Any]:
    """The name, raw mode and last argument of the decoder that Pillow has in mind; they tell how pixels are stored."""
    if not image.tile:
        return "", "", None
    decoder, _, _, args = image.tile[0]
    every = args if isinstance(args, tuple) else (args,)
    rawmode = every[0] if every and isinstance(every[0], str) else ""
    return decoder, rawmode, every[-1] if every else None
