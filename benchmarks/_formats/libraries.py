# SPDX-License-Identifier: Apache-2.0
"""The libraries that decode and encode PNG, JPEG and WebP, each behind a plain function, and Headrace's formats."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headrace import formats

Pixels = NDArray[Any]
Decode = Callable[[bytes], Pixels]
Encode = Callable[[Pixels], bytes]

JPEG_QUALITY = 90
PNG_LEVEL = 6


def decoders(name: str, shape: formats.ImageShape) -> dict[str, Decode]:
    """Every way at hand to decode a format, by library; buffers are reused where the library can."""
    found: dict[str, Decode] = {"pillow": lambda data: np.asarray(Image.open(io.BytesIO(data)))}
    out = np.empty(shape.array, shape.dtype)
    imagecodecs, cv2, pyspng, simplejpeg = map(_optional, ("imagecodecs", "cv2", "pyspng", "simplejpeg"))
    if imagecodecs is not None:
        decode = {"png": imagecodecs.png_decode, "jpeg": imagecodecs.jpeg8_decode, "webp": imagecodecs.webp_decode}[
            name
        ]
        found["imagecodecs"] = lambda data: decode(data, out=out)
        if name == "png":
            found["imagecodecs (spng)"] = lambda data: imagecodecs.spng_decode(data, out=out)
    if cv2 is not None:
        found["cv2"] = lambda data: _from_cv2(cv2, data)
    if pyspng is not None and name == "png":
        found["pyspng"] = pyspng.load
    if simplejpeg is not None and name == "jpeg":
        colors = "GRAY" if shape.channels == 1 else "RGB"
        found["simplejpeg"] = lambda data: simplejpeg.decode_jpeg(data, colors, buffer=out).reshape(shape.array)
    chosen = formats.get(name)
    found[f"headrace ({formats.backends()[name]})"] = lambda data: chosen.decode(data, out=out)
    if imagecodecs is not None and name != "jpeg":
        found["headrace (pillow)"] = lambda data: _with_pillow(chosen, data, out)
    return found


def encoders(name: str) -> dict[str, Encode]:
    """Every way at hand to encode a format at the same setting."""
    kind, options = {
        "png": ("PNG", {"compress_level": PNG_LEVEL}),
        "jpeg": ("JPEG", {"quality": JPEG_QUALITY}),
        "webp": ("WEBP", {"lossless": True, "exact": True, "method": 4, "quality": 75}),
    }[name]
    found: dict[str, Encode] = {"pillow": lambda image: _with_pil(image, kind, options)}
    imagecodecs, cv2 = _optional("imagecodecs"), _optional("cv2")
    if imagecodecs is not None:
        found["imagecodecs"] = {
            "png": lambda image: imagecodecs.png_encode(image, PNG_LEVEL),
            "jpeg": lambda image: imagecodecs.jpeg8_encode(image, JPEG_QUALITY, subsampling="420"),
            "webp": lambda image: imagecodecs.webp_encode(image, lossless=True),
        }[name]
    if cv2 is not None:
        found["cv2"] = lambda image: _to_cv2(cv2, name, image)
    mode = {"png": str(PNG_LEVEL), "jpeg": str(JPEG_QUALITY), "webp": None}[name]
    found["headrace"] = lambda image: formats.get(name).encode(image, mode=mode)
    return found


def _with_pillow(chosen: formats.Format, data: bytes, out: Pixels) -> Pixels:
    formats.use_backend("pillow")
    try:
        return chosen.decode(data, out=out)
    finally:
        formats.use_backend("auto")


def _with_pil(image: Pixels, kind: str, options: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, **options)
    return stream.getvalue()


def _from_cv2(cv2: Any, data: bytes) -> Pixels:
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION)
    if decoded is None:
        raise ValueError("cv2 returns None")
    if decoded.ndim == 2:
        return np.asarray(decoded)
    return np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB if decoded.shape[2] == 3 else cv2.COLOR_BGRA2RGBA))


def _to_cv2(cv2: Any, name: str, image: Pixels) -> bytes:
    suffix, options = {
        "png": (".png", [cv2.IMWRITE_PNG_COMPRESSION, PNG_LEVEL]),
        "jpeg": (".jpg", [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]),
        "webp": (".webp", [cv2.IMWRITE_WEBP_QUALITY, 101]),
    }[name]
    swapped = image if image.ndim == 2 else np.ascontiguousarray(image[..., [2, 1, 0, 3][: image.shape[2]]])
    return bytes(cv2.imencode(suffix, swapped, options)[1])


def _optional(name: str) -> Any | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
