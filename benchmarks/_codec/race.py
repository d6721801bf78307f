# SPDX-License-Identifier: Apache-2.0
"""All codecs on one image: first a check that each returns the pixels, then its bytes and times.

Every lossless codec decodes into a buffer of other bytes, and the pixels are compared before anything is timed. A peer
that fails is excluded and named; if Headrace fails, nothing is reported.
"""

from __future__ import annotations

import numpy as np

from benchmarks._codec.contract import HEADRACE, REFERENCE, SECOND_REFERENCE, Codec
from benchmarks._codec.images import Pixels, n_pixels
from benchmarks._codec.timing import Contender, Effort, interleave
from benchmarks._codec.totals import Row

_POISON = 0xCD


class NotLossless(Exception):
    """Headrace did not return the pixels that it was given."""


def verified(codec: Codec, pixels: Pixels, encoded: bytes) -> bool:
    """Return whether `encoded` decodes to exactly `pixels`."""
    out = np.empty_like(pixels)
    out.view(np.uint8)[...] = _POISON
    decoded = np.asarray(codec.decoder(encoded, out)())
    return (
        decoded.dtype == pixels.dtype
        and decoded.size == pixels.size
        and bool((decoded.reshape(pixels.shape) == pixels).all())
    )


def race(name: str, pixels: Pixels, codecs: list[Codec], effort: Effort) -> tuple[list[Row], list[str]]:
    """Measure every codec that can store the image; return the rows, and the peers that were not lossless."""
    encoded: dict[str, bytes] = {}
    decoding: dict[str, Contender] = {}
    encoding: dict[str, Contender] = {}
    failed = []
    for codec in codecs:
        if not codec.holds(pixels):
            continue
        encode = codec.encoder(pixels)
        file = bytes(encode())
        if codec.lossless and not verified(codec, pixels, file):
            if codec.name in HEADRACE:
                raise NotLossless(
                    f"{codec.label} must return the pixels of {name}; it returned others, so no speed is reported"
                )
            failed.append(codec.name)
            continue
        encoded[codec.name] = file
        decoding[codec.name] = Contender(codec.decoder(file, np.empty_like(pixels)), effort)
        if codec.encodes:
            encoding[codec.name] = _encode_contender(codec, pixels, effort)

    interleave([*decoding.values(), *encoding.values()])
    rows = [
        Row(
            image=name,
            codec=codec,
            n_pixels=n_pixels(pixels),
            n_bytes=len(file),
            decode_seconds=decoding[codec].best,
            encode_seconds=encoding[codec].best if codec in encoding else None,
            encode_rounds=encoding[codec].rounds if codec in encoding else 0,
        )
        for codec, file in encoded.items()
    ]
    return rows, failed


def _encode_contender(codec: Codec, pixels: Pixels, effort: Effort) -> Contender:
    contender = Contender(codec.encoder(pixels), effort)
    # Fewer rounds give a worse best time, so the two sides of every ratio of ours get all rounds.
    if contender.probed > effort.slow_seconds and codec.name not in (REFERENCE, SECOND_REFERENCE, *HEADRACE):
        contender.rounds = min(contender.rounds, effort.slow_rounds)
    return contender
