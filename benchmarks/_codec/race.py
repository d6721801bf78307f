# SPDX-License-Identifier: Apache-2.0
"""All codecs on one image: first the proof that each gives back the pixels, then its bytes and its times.

No speed without proof: every lossless codec decodes into a poisoned buffer and the pixels are compared before
anything is timed. A peer that fails is left out and named; if it is Headrace that fails, there is nothing to report.
"""

from __future__ import annotations

import numpy as np

from benchmarks._codec.contract import HEADRACE, REFERENCE, SECOND_REFERENCE, Codec
from benchmarks._codec.images import Pixels, n_pixels
from benchmarks._codec.timing import Contender, Effort, take_turns
from benchmarks._codec.totals import Row

_POISON = 0xCD


class NotLossless(Exception):
    """Headrace gave back other pixels than it was given."""


def verified(codec: Codec, pixels: Pixels, encoded: bytes) -> bool:
    """Whether `encoded` decodes to exactly `pixels`."""
    out = np.empty_like(pixels)
    out.view(np.uint8)[...] = _POISON
    decoded = np.asarray(codec.decoder(encoded, out)())
    return (
        decoded.dtype == pixels.dtype
        and decoded.size == pixels.size
        and bool((decoded.reshape(pixels.shape) == pixels).all())
    )


def race(name: str, pixels: Pixels, codecs: list[Codec], effort: Effort) -> tuple[list[Row], list[str]]:
    """Measure every codec that can hold the image; returns the rows, and the names of peers that were not lossless."""
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
                raise NotLossless(f"{codec.label} does not give back the pixels of {name}: no speed is worth printing")
            failed.append(codec.name)
            continue
        encoded[codec.name] = file
        decoding[codec.name] = Contender(codec.decoder(file, np.empty_like(pixels)), effort)
        if codec.encodes:
            encoding[codec.name] = _encode_contender(codec, pixels, effort)

    take_turns([*decoding.values(), *encoding.values()])
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
    # Best of fewer rounds flatters nobody but the others, so the two sides of every ratio of ours get all rounds.
    if contender.probed > effort.slow_seconds and codec.name not in (REFERENCE, SECOND_REFERENCE, *HEADRACE):
        contender.rounds = min(contender.rounds, effort.slow_rounds)
    return contender
