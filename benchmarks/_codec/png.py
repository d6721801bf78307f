# SPDX-License-Identifier: Apache-2.0
"""PNG files as they are: how fast each library decodes them, and how fast each inflates their image data.

Unlike the other tables, this one does not encode first: the files are those of the set, from whatever program wrote
them. Every decoder must return the pixels that Pillow returns. The 8-bit files without a palette count: all libraries
return these in the same way.
"""

from __future__ import annotations

import importlib
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from benchmarks._codec.race import NotLossless
from benchmarks._codec.timing import Contender, Effort, interleave
from benchmarks.tables import Table, figures, times
from headrace import formats

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from benchmarks._codec.images import ImageSet, Pixels

Decode = Callable[[], Any]

HEADRACE = "headrace"
PILLOW = "Pillow"
_MODES = {"L", "LA", "RGB", "RGBA"}
_MEGA = 1e6
_BIT_DEPTH_AT = 24  # in the file: the signature, the head of the first chunk, width and height come before it


def measure(image_set: ImageSet, effort: Effort) -> dict[str, Any]:
    """Decode every suitable file of a set with every library, and inflate its image data with every library."""
    document: dict[str, Any] = {"decode": [], "inflate": [], "omitted": []}
    for file in image_set.files:
        pixels = _reference(file)
        if pixels is None:
            document["omitted"].append(image_set.label(file))
            continue
        encoded = file.read_bytes()
        stream = image_data(encoded)
        n_filtered = len(zlib.decompress(stream))
        decoders = {name: Contender(call, effort) for name, call in _decoders(file, encoded, pixels)}
        inflaters = {name: Contender(call, effort) for name, call in _inflaters(stream, n_filtered)}
        interleave([*decoders.values(), *inflaters.values()])
        head = {"image": image_set.label(file), "n_bytes": len(encoded)}
        n_pixels = pixels.shape[0] * pixels.shape[1]
        document["decode"] += [
            {**head, "library": name, "n_pixels": n_pixels, "seconds": contender.best}
            for name, contender in decoders.items()
        ]
        document["inflate"] += [
            {**head, "library": name, "n_filtered": n_filtered, "seconds": contender.best}
            for name, contender in inflaters.items()
        ]
    return document


def _reference(file: Path) -> Pixels | None:
    if file.suffix.lower() != ".png" or file.read_bytes()[_BIT_DEPTH_AT] == 16:  # Pillow reads 16-bit RGB as 8-bit RGB
        return None
    with Image.open(file) as image:
        return np.asarray(image) if image.mode in _MODES else None


def _decoders(file: Path, encoded: bytes, pixels: Pixels) -> Iterator[tuple[str, Decode]]:
    """Yield the decoders that return the pixels of the file; raise NotLossless if ours does not."""
    for name, call in _all_decoders(encoded, np.empty_like(pixels)):
        decoded = np.asarray(call())
        if name == "cv2" and decoded.ndim == 3:  # it returns BGR
            decoded = decoded[..., [2, 1, 0, *range(3, decoded.shape[2])]]
        if decoded.dtype == pixels.dtype and np.array_equal(decoded.reshape(pixels.shape), pixels):
            yield name, call
        elif name == HEADRACE:
            raise NotLossless(f"Headrace must return the pixels of {file.name}; it returned others")


def _all_decoders(encoded: bytes, out: Pixels) -> Iterator[tuple[str, Decode]]:
    def pillow() -> Image.Image:
        image = Image.open(io.BytesIO(encoded))
        image.load()
        return image

    yield PILLOW, pillow
    if (pyspng := _library("pyspng")) is not None:
        yield "pyspng", partial(pyspng.load, encoded)
    if (imagecodecs := _library("imagecodecs")) is not None:
        yield "imagecodecs", partial(imagecodecs.png_decode, encoded, out=out)
    if (cv2 := _library("cv2")) is not None:
        cv2.setNumThreads(1)
        yield "cv2", partial(cv2.imdecode, np.frombuffer(encoded, np.uint8), cv2.IMREAD_UNCHANGED)
    yield HEADRACE, partial(formats.get("png").decode, encoded, out=out)


def _inflaters(stream: bytes, n_filtered: int) -> Iterator[tuple[str, Decode]]:
    if (deflate := _library("deflate")) is not None:
        yield "libdeflate", partial(deflate.zlib_decompress, stream, n_filtered)
    if (isal := _library("isal.isal_zlib")) is not None:
        yield "ISA-L", partial(isal.decompress, stream, bufsize=n_filtered)
    if (zlib_ng := _library("zlib_ng.zlib_ng")) is not None:
        yield "zlib-ng", partial(zlib_ng.decompress, stream, bufsize=n_filtered)
    yield "zlib", partial(zlib.decompress, stream, bufsize=n_filtered)


def _library(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def image_data(encoded: bytes) -> bytes:
    """Return the contents of all IDAT chunks of a valid file."""
    parts = []
    at = 8
    while at < len(encoded):
        end = at + 8 + int.from_bytes(encoded[at : at + 4], "big")
        if encoded[at + 4 : at + 8] == b"IDAT":
            parts.append(encoded[at + 8 : end])
        at = end + 4
    return b"".join(parts)


def tables(measured: Mapping[str, Any]) -> list[Table]:
    """Return the decoders and the inflating libraries of one set; nothing if they were not measured."""
    png = measured.get("png")
    if not png or not png["decode"]:
        return []
    decode = _speeds(png["decode"], "n_pixels")
    inflate = _speeds(png["inflate"], "n_filtered")
    images = len({row["image"] for row in png["decode"]})
    notes = []
    others = [speed for name, speed in decode.items() if name not in (HEADRACE, PILLOW)]
    if others:
        notes.append(f"Headrace is {times(decode[HEADRACE] / max(others))} as fast as the fastest besides Pillow.")
    if png["omitted"]:
        notes.append(f"{len(png['omitted'])} files are omitted: not PNG, or with a palette or 16 bits.")
    return [
        Table(
            title=f"{measured['name']}: {images} PNG files as they are, one core",
            columns=("decoder", "MP/s", "x Pillow"),
            rows=[(name, figures(speed / _MEGA), times(speed / decode[PILLOW])) for name, speed in decode.items()],
            notes=notes,
            bold=frozenset({HEADRACE}),
        ),
        Table(
            title=f"{measured['name']}: their image data inflated, one core",
            columns=("library", "MB/s of filtered rows", "x zlib"),
            rows=[(name, figures(speed / _MEGA), times(speed / inflate["zlib"])) for name, speed in inflate.items()],
        ),
    ]


def _speeds(rows: Sequence[Mapping[str, Any]], amount: str) -> dict[str, float]:
    """Return what each library gets done per second, over the files that all of them decode."""
    names = list(dict.fromkeys(row["library"] for row in rows))
    by_image: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_image.setdefault(row["image"], []).append(row)
    common = [row for own in by_image.values() if len(own) == len(names) for row in own]
    return {
        name: sum(row[amount] for row in common if row["library"] == name)
        / sum(row["seconds"] for row in common if row["library"] == name)
        for name in names
    }
