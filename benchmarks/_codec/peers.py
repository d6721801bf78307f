# SPDX-License-Identifier: Apache-2.0
"""The codecs that are compared, as far as their libraries are installed."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import headrace
from benchmarks._codec.contract import HEADRACE, REFERENCE, SECOND_REFERENCE, Codec, Decode, Encode, Mode
from benchmarks._codec.images import Pixels, channels
from headrace import formats

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

Kinds = Mapping[str, AbstractSet[int]]  # dtype to the numbers of channels that a codec can store

_NO_OPTIONS: Mapping[str, Any] = {}
_WEBP_MAX_SIDE = 16383


def available() -> tuple[list[Codec], list[str]]:
    """All codecs that are installed, the reference first and ours last, and a note for each library that is not."""
    found = [_pillow_png()]
    notes = []
    for library, make in (("pyspng", _pyspng), ("imagecodecs", _imagecodecs), ("simplejpeg", _simplejpeg)):
        try:
            found += make(importlib.import_module(library))
        except ImportError:
            notes.append(f"{library} is not installed, so its codecs are omitted (`pip install {library}`)")
    return [*found, _memcpy(), _headrace_png(), *(_headrace(mode) for mode in HEADRACE)], notes


def choose(codecs: list[Codec], only: list[str]) -> list[Codec]:
    """The named codecs, with the references that their ratios need; all of them if none is named."""
    known = [codec.name for codec in codecs]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise ValueError(f"--only must be from {', '.join(known)}; got {', '.join(unknown)}")
    wanted = {*only, REFERENCE, SECOND_REFERENCE} if only else set(known)
    return [codec for codec in codecs if codec.name in wanted]


def reference_for(pixels: Pixels, codecs: list[Codec]) -> str | None:
    """Return the codec that ratios compare with: Pillow's PNG, else imagecodecs', else none (multi-band, int16)."""
    by_name = {codec.name: codec for codec in codecs}
    for name in (REFERENCE, SECOND_REFERENCE):
        if name in by_name and by_name[name].holds(pixels):
            return name
    return None


def _holds(kinds: Kinds, pixels: Pixels) -> bool:
    return channels(pixels) in kinds.get(pixels.dtype.name, ())


def _pillow_png() -> Codec:
    def encoder(pixels: Pixels) -> Encode:
        image = Image.fromarray(pixels)

        def encode() -> bytes:
            stream = io.BytesIO()
            image.save(stream, "PNG", compress_level=6)
            return stream.getvalue()

        return encode

    def decoder(encoded: bytes, _out: Pixels) -> Decode:
        # Pillow has no way to decode into a given buffer, and its own image is what it decodes to: the copy that
        # numpy.asarray would add is not charged to it.
        def decode() -> Image.Image:
            image = Image.open(io.BytesIO(encoded))
            image.load()
            return image

        return decode

    kinds = {"uint8": {1, 2, 3, 4}, "uint16": {1}}
    return Codec(REFERENCE, "PNG 6 (Pillow)", partial(_holds, kinds), encoder, decoder)


def _pyspng(pyspng: ModuleType) -> list[Codec]:
    def decoder(encoded: bytes, _out: Pixels) -> Decode:
        return partial(pyspng.load, encoded)

    holds = partial(_holds, {"uint8": {1, 3, 4}})
    return [Codec("pyspng", "PNG 6 (pyspng)", holds, _pillow_png().encoder, decoder, encodes=False)]


def _imagecodecs(library: ModuleType) -> list[Codec]:
    """The codecs of the imagecodecs package; those that its build lacks are omitted."""
    many = set(range(1, 65))
    png = {"uint8": {1, 2, 3, 4}, "uint16": {1, 2, 3, 4}}
    jxl = {"uint8": many, "uint16": many}
    photographic = {"uint8": {1, 3, 4}, "uint16": {1, 3, 4}}
    colour = {"uint8": {3, 4}}

    one = {"numthreads": 1}
    make = partial(_imagecodecs_image, library)
    found = [
        make(SECOND_REFERENCE, "PNG 6 (imagecodecs)", "png", png, write={"level": 6}),
        make("qoi", "QOI", "qoi", colour),
        make("webp", "WebP lossless", "webp", colour, write={"lossless": True, **one}),
        make("jxl-e1", "JPEG XL lossless e1", "jpegxl", jxl, write={"lossless": True, "effort": 1, **one}, read=one),
        make("jpeg-ls", "JPEG-LS", "jpegls", photographic),
        make("htj2k", "HTJ2K lossless", "htj2k", photographic, write={"reversible": True}),
        _imagecodecs_raw(library, "zstd-3", "zstd 3 of raw", "zstd", write={"level": 3}),
        _imagecodecs_raw(library, "lz4", "LZ4 of raw", "lz4", write={}),
    ]
    return [codec for codec in found if codec is not None]


def _imagecodecs_image(
    library: ModuleType,
    name: str,
    label: str,
    family: str,
    kinds: Kinds,
    write: Mapping[str, Any] = _NO_OPTIONS,
    read: Mapping[str, Any] = _NO_OPTIONS,
) -> Codec | None:
    calls = _imagecodecs_calls(library, family)
    if calls is None:
        return None
    encode, decode = calls

    def holds(pixels: Pixels) -> bool:
        return _holds(kinds, pixels) and (family != "webp" or max(pixels.shape) <= _WEBP_MAX_SIDE)

    def decoder(encoded: bytes, out: Pixels) -> Decode:
        # WebP drops an alpha channel that is opaque all over; it must be asked for.
        alpha = {"hasalpha": channels(out) == 4} if family == "webp" else {}
        return partial(decode, encoded, out=out, **read, **alpha)

    return Codec(name, label, holds, lambda pixels: partial(encode, pixels, **write), decoder)


def _imagecodecs_raw(
    library: ModuleType, name: str, label: str, family: str, *, write: Mapping[str, Any]
) -> Codec | None:
    """A general compressor over the bare samples."""
    calls = _imagecodecs_calls(library, family)
    if calls is None:
        return None
    encode, decode = calls

    def decoder(encoded: bytes, out: Pixels) -> Decode:
        flat = out.reshape(-1).view(np.uint8).data

        def decompress() -> Pixels:
            decode(encoded, out=flat)
            return out

        return decompress

    return Codec(name, label, lambda _: True, lambda pixels: partial(encode, pixels, **write), decoder)


def _imagecodecs_calls(library: ModuleType, family: str) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    if not getattr(getattr(library, family.upper(), None), "available", False):
        return None
    return getattr(library, f"{family}_encode"), getattr(library, f"{family}_decode")


def _simplejpeg(simplejpeg: ModuleType) -> list[Codec]:
    """JPEG at quality 90 with the usual 4:2:0 chroma: what people fall back to when PNG is too slow."""

    def encoder(pixels: Pixels) -> Encode:
        if pixels.ndim == 2:
            return partial(simplejpeg.encode_jpeg, pixels[..., None], 90, "GRAY", "Gray")
        return partial(simplejpeg.encode_jpeg, pixels, 90, "RGB", "420")

    def decoder(encoded: bytes, out: Pixels) -> Decode:
        return partial(simplejpeg.decode_jpeg, encoded, "GRAY" if out.ndim == 2 else "RGB", buffer=out)

    holds = partial(_holds, {"uint8": {1, 3}})
    return [Codec("jpeg-q90", "JPEG q90 (lossy)", holds, encoder, decoder, lossless=False)]


def _memcpy() -> Codec:
    """The bare samples, copied: what no codec that writes its output can beat."""

    def decoder(encoded: bytes, out: Pixels) -> Decode:
        pixels = np.frombuffer(encoded, out.dtype).reshape(out.shape)

        def copy() -> Pixels:
            np.copyto(out, pixels)
            return out

        return copy

    return Codec("memcpy", "raw (memcpy)", lambda _: True, lambda pixels: pixels.tobytes, decoder)


def _headrace_png() -> Codec:
    png = formats.get("png")

    def decoder(encoded: bytes, out: Pixels) -> Decode:
        return partial(png.decode, encoded, out=out)

    holds = partial(_holds, {"uint8": {1, 2, 3, 4}, "uint16": {1, 2, 3, 4}})
    return Codec("png-headrace", "PNG 6 (Headrace)", holds, lambda pixels: partial(png.encode, pixels), decoder)


def _headrace(mode: Mode) -> Codec:
    def encoder(pixels: Pixels) -> Encode:
        return partial(headrace.encode, pixels, mode=mode)

    def decoder(encoded: bytes, out: Pixels) -> Decode:
        return partial(headrace.decode, encoded, out=out)

    kinds = {name: set(range(1, 65)) for name in ("uint8", "uint16", "int16")}
    return Codec(mode, f"hri:{mode}", partial(_holds, kinds), encoder, decoder)
