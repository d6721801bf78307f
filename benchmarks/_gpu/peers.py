# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's decoders on the same pictures: nvImageCodec and DALI, where they are installed."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image

from benchmarks._codec.images import Pixels

# How Pillow writes what peers read. PNG is decoded by a CPU in both; JPEG is lossy, and here for its speed alone.
_PILLOW: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG"},
    "jpeg": {"format": "JPEG", "quality": 90},
    "tiff-deflate": {"format": "TIFF", "compression": "tiff_adobe_deflate"},
}
LOSSLESS = ("png", "tiff-deflate", "htj2k")
PACKAGES = ("nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13", "nvidia-dali-cuda120", "nvidia-dali-cuda130")


class Absent(Exception):
    """A peer that cannot run here; says why."""


def encode(picture: Pixels, form: str) -> Any:
    """A picture as a peer reads it: bytes, or nvImageCodec's own stream of HTJ2K, which Pillow cannot write."""
    if form == "htj2k":
        return _htj2k(picture)
    memory = io.BytesIO()
    Image.fromarray(picture).save(memory, **_PILLOW[form])
    return memory.getvalue()


def n_bytes(encoded: Any) -> int:
    """The size of what `encode` gave."""
    return len(encoded) if isinstance(encoded, bytes) else int(encoded.size)


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Absent(f"{name} cannot be imported: {error}") from None


def _htj2k(picture: Pixels) -> Any:
    nvimgcodec = _imported("nvidia.nvimgcodec")
    params = nvimgcodec.EncodeParams(
        quality_type=nvimgcodec.QualityType.LOSSLESS,
        jpeg2k_encode_params=nvimgcodec.Jpeg2kEncodeParams(ht=True),
    )
    return nvimgcodec.Encoder().encode(nvimgcodec.as_image(picture), "jpeg2k", params=params)


def nvimagecodec(encoded: Sequence[Any]) -> Callable[[], Any]:
    """A call that decodes all on the device."""
    decoder = _imported("nvidia.nvimgcodec").Decoder()
    listed = list(encoded)

    def decode() -> Any:
        images = decoder.decode(listed)
        if any(image is None for image in images):
            raise Absent("nvImageCodec has no decoder for it")
        return images

    return decode


def dali(encoded: Sequence[Any], threads: int) -> Callable[[], Any]:
    """A call that decodes all as one batch of a DALI pipeline, on the device where DALI can."""
    nvidia_dali = _imported("nvidia.dali")
    if not all(isinstance(item, bytes) for item in encoded):
        raise Absent("DALI is given bytes, and this format is only had as nvImageCodec's stream")
    arrays = [np.frombuffer(item, np.uint8) for item in encoded]

    @nvidia_dali.pipeline_def(batch_size=len(arrays), num_threads=threads, device_id=0, prefetch_queue_depth=1)
    def pipeline() -> Any:
        files = nvidia_dali.fn.external_source(source=lambda: arrays, batch=True)
        return nvidia_dali.fn.decoders.image(files, device="mixed")

    pipe = pipeline()
    pipe.build()
    return pipe.run  # type: ignore[no-any-return]


def calls(
    pictures: Sequence[Pixels], threads: int, told: Callable[[str], None]
) -> Iterator[tuple[str, str, int, Callable[[], Any]]]:
    """Give the peer, the format, the encoded bytes and the call for each that can run; tell why others cannot."""
    for form in (*_PILLOW, "htj2k"):
        try:
            encoded = [encode(picture, form) for picture in pictures]
        except Absent as reason:
            told(f"{form} is left out: {reason}")
            continue
        size = sum(map(n_bytes, encoded))
        for name, make in (("nvImageCodec", nvimagecodec), ("DALI", lambda given: dali(given, threads))):
            try:
                call = make(encoded)
                call()
            except (Absent, RuntimeError) as reason:
                told(f"{name}, {form} is left out: {reason}")
                continue
            yield name, form, size, call
