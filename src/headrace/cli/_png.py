# SPDX-License-Identifier: Apache-2.0
"""Write PNG: Pillow for what it holds, imagecodecs for 16 bit with several channels; ICC, EXIF and XMP with both."""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.cli._pictures import require_imagecodecs
from headrace.errors import UnsupportedImage

if TYPE_CHECKING:
    import numpy.typing as npt

_HEAD_BYTES = 8 + 25  # the signature and IHDR, which all chunks of metadata must follow and may follow at once


def encode_png(array: npt.NDArray[Any], metadata: Mapping[str, bytes]) -> bytes:
    """Encode an image as PNG with its ICC, EXIF and XMP blocks; other metadata has no place there."""
    channels = 1 if array.ndim == 2 else array.shape[2]
    if channels > 4 or array.dtype.name not in {"uint8", "uint16"}:
        raise UnsupportedImage(
            f"PNG does not hold {channels} channel(s) of {array.dtype.name}; write NumPy's format, with --to npy"
        )
    if array.dtype.itemsize == 2 and channels > 1:
        png = bytes(require_imagecodecs("to write PNG of 16 bit with several channels").png_encode(array, level=6))
    else:
        from PIL import Image  # noqa: PLC0415 - slow to import

        file = io.BytesIO()
        Image.fromarray(array).save(file, "PNG")
        png = file.getvalue()
    return png[:_HEAD_BYTES] + b"".join(_chunks(metadata)) + png[_HEAD_BYTES:]


def _chunks(metadata: Mapping[str, bytes]) -> list[bytes]:
    chunks = []
    if "icc" in metadata:
        chunks.append(_chunk(b"iCCP", b"ICC Profile\0\0" + zlib.compress(metadata["icc"])))
    if "exif" in metadata:
        chunks.append(_chunk(b"eXIf", metadata["exif"]))
    if "xmp" in metadata:
        chunks.append(_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + metadata["xmp"]))
    return chunks


def _chunk(name: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")
