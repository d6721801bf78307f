# SPDX-License-Identifier: Apache-2.0
"""The peers keep what they promise, and nobody is timed who does not."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks._codec import peers, report
from benchmarks._codec.contract import HEADRACE, REFERENCE, SECOND_REFERENCE
from benchmarks._codec.race import NotLossless, race, verified
from benchmarks._codec.timing import Contender, Effort, interleave

EFFORT = Effort(rounds=1, span_seconds=0)
KINDS = [(dtype, channels) for dtype in ("uint8", "uint16", "int16") for channels in (1, 2, 3, 4, 7)]


def picture(dtype, channels, height=37, width=41):
    """A slope with a little noise, in all samples different."""
    noise = np.random.default_rng(0).integers(0, 5, (height, width, channels))
    pixels = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None] + noise
    pixels = pixels.astype(dtype)
    return np.ascontiguousarray(pixels[..., 0] if channels == 1 else pixels)


def codecs():
    return peers.available()[0]


@pytest.mark.parametrize(
    ("codec", "dtype", "channels"),
    [
        pytest.param(codec, *kind, id=f"{codec.name}-{kind[0]}-{kind[1]}")
        for codec in codecs()
        for kind in KINDS
        if codec.holds(picture(*kind))
    ],
)
def test_what_a_codec_says_it_holds_comes_back(codec, dtype, channels):
    pixels = picture(dtype, channels)
    encoded = bytes(codec.encoder(pixels)())
    if codec.lossless:
        assert verified(codec, pixels, encoded)
    else:
        decoded = codec.decoder(encoded, np.empty_like(pixels))().reshape(pixels.shape)
        assert np.abs(decoded.astype(int) - pixels).mean() < 16


def test_opaque_alpha_comes_back_from_every_codec():
    pixels = picture("uint8", 4)
    pixels[..., 3] = 255
    for codec in codecs():
        if codec.holds(pixels):
            assert verified(codec, pixels, bytes(codec.encoder(pixels)())), codec.name


def test_headrace_holds_everything_and_pillow_is_the_reference_where_it_can_be():
    every = codecs()
    modes = [codec for codec in every if codec.name in HEADRACE]
    for dtype, channels in KINDS:
        assert all(codec.holds(picture(dtype, channels)) for codec in modes)
    assert peers.reference_for(picture("uint8", 3), every) == REFERENCE
    assert peers.reference_for(picture("uint16", 1), every) == REFERENCE
    if SECOND_REFERENCE in [codec.name for codec in every]:
        assert peers.reference_for(picture("uint16", 3), every) == SECOND_REFERENCE
    assert peers.reference_for(picture("int16", 1), every) is None


def test_choosing_keeps_the_reference_and_refuses_what_it_does_not_know():
    names = [codec.name for codec in peers.choose(codecs(), ["dense"])]

    assert names[0] == REFERENCE
    assert set(names) <= {REFERENCE, SECOND_REFERENCE, "dense"}
    with pytest.raises(ValueError, match=r"--only must be from png, .*dense; got djvu"):
        peers.choose(codecs(), ["djvu"])


def careless(codec):
    """The codec with a decoder that leaves the buffer as it was."""
    return replace(codec, decoder=lambda _encoded, out: lambda: out)


def test_a_peer_that_is_not_lossless_is_named_and_not_timed():
    pixels = picture("uint8", 3)
    entrants = [careless(codec) if codec.name == "memcpy" else codec for codec in codecs()]
    rows, failed = race("slope.png", pixels, entrants, EFFORT)
    document = report.set_document(
        name="set",
        sha256="",
        codecs=entrants,
        rows=rows,
        references={"slope.png": REFERENCE},
        failed={name: ["slope.png"] for name in failed},
    )

    assert failed == ["memcpy"]
    assert "memcpy" not in [row.codec for row in rows]
    assert "raw (memcpy) did not return the pixels of slope.png." in report.set_table(document).notes


def test_no_speed_is_reported_when_headrace_is_not_lossless():
    entrants = [careless(codec) if codec.name == "dense" else codec for codec in codecs()]

    with pytest.raises(NotLossless, match=r"hri:dense .* slope.png"):
        race("slope.png", picture("uint8", 3), entrants, EFFORT)


def test_contenders_interleave_and_keep_their_best_time():
    calls = []
    ticks = iter([0, 4, 0, 1, 0, 3, 0, 2, 0, 7, 0, 5])  # probes of a and b, then two rounds of each
    effort = Effort(rounds=2, span_seconds=0)
    contenders = [
        Contender(lambda name=name: calls.append(name), effort, clock=lambda: float(next(ticks))) for name in "ab"
    ]
    interleave(contenders)

    assert "".join(calls) == "ab" + "ab" * 2
    assert [contender.best for contender in contenders] == [3, 2]


def test_short_calls_are_repeated_to_fill_the_span():
    calls = []
    now = 0.0

    def call():
        nonlocal now
        calls.append(1)
        now += 0.25

    contender = Contender(call, Effort(rounds=1, span_seconds=2.0), clock=lambda: now)
    calls.clear()
    contender.run()

    assert len(calls) == 8
    assert contender.best == 0.25
