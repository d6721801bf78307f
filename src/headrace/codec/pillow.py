# SPDX-License-Identifier: Apache-2.0
"""A Pillow plugin for `.hri`: import this module once, then use `Image.open` and `image.save` as usual.

    import headrace.codec.pillow
    Image.open("photo.png").save("photo.hri", mode="fast")
    Image.open("photo.hri").show()

Options of `save`: `mode` ("dense" or "fast"), `threads`, `icc_profile`, `exif`, `xmp` (by default those of the image)
and `metadata`, a mapping of further entries (by default `image.info["metadata"]`, where `open` stores them).

Images without a Pillow mode (16 bits with several channels, int16, more than four channels) raise `UnsupportedImage`;
they are never reduced. All errors are also `OSError`, which users of Pillow catch.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageFile

from headrace.codec._encoding import encode
from headrace.codec.decoding import decode, inspect
from headrace.errors import CorruptImage, UnsupportedImage

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.codec.decoding import ImageInfo

__all__ = ["CorruptImageFile", "HriImageFile", "UnsupportedImageFile", "metadata_of", "to_array"]

_MAGIC = b"\x89HRI"
_EXIF_PREFIX = b"Exif\x00\x00"  # Pillow keeps the prefix of JPEG's APP1 segment; `.hri` stores EXIF without it
_INFO_KEYS = {"icc": "icc_profile", "exif": "exif", "xmp": "xmp"}
_MODES = {
    ("uint8", 1): "L",
    ("uint8", 2): "LA",
    ("uint8", 3): "RGB",
    ("uint8", 4): "RGBA",
    ("uint16", 1): "I;16",
}


class CorruptImageFile(CorruptImage, OSError):
    """A damaged file, as an OSError."""


class UnsupportedImageFile(UnsupportedImage, OSError):
    """A file without a Pillow mode, or an image that `.hri` cannot hold, as an OSError."""


class HriImageFile(ImageFile.ImageFile):
    """An `.hri` file opened by Pillow. Pixels are decoded on first use."""

    format = "HRI"
    format_description = "Headrace image"

    _encoded: bytes | None = None  # None once loaded; a class attribute because copies and pickles do not have it

    def _open(self) -> None:
        assert self.fp is not None
        self._encoded = self.fp.read()
        head = _translated(inspect, self._encoded)
        self._size = (head.width, head.height)
        self._mode = _pillow_mode(head)
        self.info.update(_info_of(head))

    def load(self) -> Any:
        """Decode the pixels, once."""
        if self._encoded is not None:
            # Pillow has already checked the size against its own limit.
            array = _translated(decode, self._encoded, max_pixels=self.width * self.height)
            self.im = Image.frombytes(self.mode, self.size, memoryview(array).cast("B")).im
            self.readonly = 0
            self._release()
        return super().load()

    def verify(self) -> None:
        """Check every checksum of the file and discard the pixels."""
        if self._encoded is not None:
            _translated(decode, self._encoded, max_pixels=self.width * self.height)
            self._encoded = None
        super().verify()

    def _release(self) -> None:
        self._encoded = None
        if self.fp is not None and self._exclusive_fp:
            self.fp.close()
        self.fp = None


def to_array(image: Image.Image) -> npt.NDArray[Any]:
    """Return the pixels as an array without losing anything.

    Bilevel images become 0 and 255. A transparent color becomes an alpha channel. Palettes are looked up.

    Raises:
        UnsupportedImage: The format cannot hold the image, or two used palette entries have the same color, so that
            the indices would be lost.

    """
    mode = image.mode
    if mode == "P":
        image = _resolve_palette(image)
    elif mode in {"1", "L", "RGB"} and "transparency" in image.info:
        image = image.convert("RGBA" if mode == "RGB" else "LA")
    elif mode == "1":
        image = image.convert("L")
    elif mode not in {"L", "LA", "RGB", "RGBA"} and (not mode.startswith("I;16") or "transparency" in image.info):
        raise UnsupportedImageFile(
            f"an .hri file cannot hold Pillow's mode {mode}; convert the image to L, LA, RGB, RGBA or I;16 first, "
            "if that loses nothing that you need"
        )
    return np.asarray(image)


def metadata_of(image: Image.Image) -> dict[str, bytes]:
    """Return the ICC, EXIF and XMP blocks of an opened image under the keys of `.hri` metadata."""
    found = {key: _as_block(image.info.get(name)) for key, name in _INFO_KEYS.items()}
    return {key: block for key, block in found.items() if block}


def _resolve_palette(image: Image.Image) -> Image.Image:
    has_alpha = "transparency" in image.info or (image.palette is not None and image.palette.mode == "RGBA")
    mode = "RGBA" if has_alpha else "RGB"
    every_entry = image.resize((256, 1))  # keeps the palette and its transparency
    every_entry.putdata(range(256))
    used = np.flatnonzero(image.histogram())
    if len(np.unique(np.asarray(every_entry.convert(mode))[0, used], axis=0)) < len(used):
        raise UnsupportedImageFile(
            "two used palette entries have the same color, so the indices would be lost; encode np.asarray(image) to "
            "keep the indices, or save image.convert('RGB') to keep the colors"
        )
    return image.convert(mode)


def _pillow_mode(head: ImageInfo) -> str:
    mode = _MODES.get((head.dtype.name, head.channels))
    if mode is None:
        raise UnsupportedImageFile(
            f"Pillow has no mode for {head.channels} channel(s) of {head.dtype.name}; use headrace.decode"
        )
    return mode


def _info_of(head: ImageInfo) -> dict[str, Any]:
    entries = dict(head.metadata)
    info: dict[str, Any] = {name: entries.pop(key) for key, name in _INFO_KEYS.items() if key in entries}
    if "exif" in info:
        info["exif"] = _EXIF_PREFIX + info["exif"]
    if entries:
        info["metadata"] = entries
    return info


def _as_block(block: Any) -> bytes:
    """Return a metadata block as bytes, from any of the types that Pillow accepts."""
    if isinstance(block, Image.Exif):
        block = block.tobytes()
    if isinstance(block, str):
        block = block.encode()
    return bytes(block or b"").removeprefix(_EXIF_PREFIX)


def _translated(call: Any, *args: Any, **options: Any) -> Any:
    """Call the codec; errors become subclasses of OSError and keep their attributes."""
    try:
        return call(*args, **options)
    except (CorruptImage, UnsupportedImage) as error:
        kind = CorruptImageFile if isinstance(error, CorruptImage) else UnsupportedImageFile
        translated = kind(*error.args)
        translated.__dict__.update(error.__dict__)
        raise translated from None


def _save(image: Image.Image, fp: IO[bytes], _filename: str | bytes) -> None:
    options = image.encoderinfo
    metadata = {key: _as_block(options.get(name, image.info.get(name))) for key, name in _INFO_KEYS.items()}
    entries = dict(options.get("metadata", image.info.get("metadata", {})))
    entries.update({key: block for key, block in metadata.items() if block})
    fp.write(
        encode(to_array(image), mode=options.get("mode", "dense"), metadata=entries, threads=options.get("threads", 1))
    )


def _accept(prefix: bytes) -> bool:
    return prefix.startswith(_MAGIC)


Image.register_open(HriImageFile.format, HriImageFile, _accept)
Image.register_save(HriImageFile.format, _save)
Image.register_extension(HriImageFile.format, ".hri")
Image.register_mime(HriImageFile.format, "image/x-headrace")
