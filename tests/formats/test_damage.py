# SPDX-License-Identifier: Apache-2.0
"""Damaged bytes raise CorruptImage and nothing else, whichever decoder meets them."""

from __future__ import annotations

import contextlib
import gc
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.formats.pictures import picture, png_chunk, saved

from headrace import formats
from headrace.errors import CorruptImage, ImageTooLarge, UnsupportedImage

ROOT = Path(__file__).parents[2]

# Formats whose head has no checksum may come to claim a size or a kind that is refused for what it is; .hri may come to
# claim another version.
_ANY = (CorruptImage, UnsupportedImage, ImageTooLarge)
REFUSALS = {"hri": (CorruptImage, UnsupportedImage), "jpeg": _ANY, "webp": _ANY}
CHECKED = ("hri", "png", "raw")


def specimens():
    for name in ("hri", "png", "raw", "webp"):
        yield name, formats.get(name).encode(picture(height=40, width=33))
    yield "png", saved(Image.fromarray(picture()).quantize(16), "PNG")
    yield "png", formats.get("png").encode(picture("uint16", 3, 20, 20))
    yield "webp", saved(picture(channels=4), "WEBP", quality=60)
    for mode in ("L", "RGB", "CMYK"):
        image = Image.frombytes("CMYK", (37, 45), picture(channels=4).tobytes()).convert(mode)
        yield "jpeg", saved(image, "JPEG")
        yield "jpeg", saved(image, "JPEG", progressive=True)


SPECIMENS = list(specimens())
IDS = [f"{name}-{number}" for number, (name, _) in enumerate(SPECIMENS)]


def damage(data, rng):
    """A few flipped bits, a piece cut out, a piece of noise, a piece said twice, or the end gone."""
    changed = bytearray(data)
    kind = rng.randrange(5)
    start = rng.randrange(len(changed))
    length = rng.randint(1, 20)
    if kind == 0:
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del changed[start : start + length]
    elif kind == 2:
        changed[start : start + length] = rng.randbytes(length)
    elif kind == 3:
        changed[start:start] = changed[start : start + length]
    else:
        del changed[start:]
    return bytes(changed)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("name", "data"), SPECIMENS, ids=IDS)
def test_damage_is_refused_or_harmless(name, data):
    """Where checksums guard the pixels a decoder refuses, or the pixels are right; elsewhere it refuses or decodes."""
    intact = formats.get(name).decode(data)
    rng = random.Random(f"{name}{len(data)}")
    for _ in range(300):
        damaged = damage(data, rng)
        try:
            decoded = formats.get(name).decode(damaged, max_pixels=10**6)
        except REFUSALS.get(name, CorruptImage):
            continue
        assert decoded.dtype == np.uint8 or name == "png"
        if name in CHECKED:
            assert np.array_equal(decoded, intact)


def lost_references(name, data):
    """Refuse damaged files many times; return how many references the output array and None have lost."""
    out = np.empty_like(formats.get(name).decode(data))
    rng = random.Random(0)
    cuts = [data[: rng.randrange(len(data))] for _ in range(20)]
    forged = [forge(data, rng) for _ in range(20)] if name == "png" else []

    def refuse_all(out):
        for damaged in cuts + forged:
            with contextlib.suppress(CorruptImage):
                formats.get(name).decode(damaged, out=out)

    before = 0, 0
    for rounds in (5, 10):  # the interpreter and the libraries fill caches in the first rounds
        before = sys.getrefcount(out), sys.getrefcount(None)
        for _ in range(rounds):
            refuse_all(out)
            refuse_all(None)
        gc.collect()
    return before[0] - sys.getrefcount(out), before[1] - sys.getrefcount(None)


COUNT = """
import sys
from tests.formats.test_damage import SPECIMENS, lost_references
from headrace.formats import webp

if sys.argv[1] == "pillow":
    webp.fast_decoders = lambda: None
for number, (name, data) in enumerate(SPECIMENS):
    print(number, name, *lost_references(name, data))
"""


def test_refusals_lose_no_references(backend):
    """A decoder that jumps out of an error can leave the caller's array, or None, with fewer owners than it has.

    A process of its own: every thread that another test has left behind changes the reference count of None.
    """
    counted = subprocess.run(
        [sys.executable, "-c", COUNT, backend], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    lost = [line.split() for line in counted.stdout.splitlines()]
    assert len(lost) == len(SPECIMENS)
    assert [entry for entry in lost if int(entry[2]) != 0 or abs(int(entry[3])) > 20] == []


def forge(data, rng):
    """Damage the image data of a PNG file and make its checksum honest again."""
    start = data.index(b"IDAT") - 4
    length = int.from_bytes(data[start : start + 4], "big")
    contents = bytearray(data[start + 8 : start + 8 + length])
    contents[rng.randrange(2, length)] ^= 1 << rng.randrange(8)
    return data[:start] + png_chunk(b"IDAT", bytes(contents)) + data[start + 12 + length :]


@pytest.mark.usefixtures("backend")
def test_forged_png_data_is_refused_or_decodes():
    """With honest checksums the decoder itself has to find the damage."""
    for dtype, channels in (("uint8", 1), ("uint8", 3), ("uint8", 4), ("uint16", 3), ("uint16", 4)):
        data = formats.get("png").encode(picture(dtype, channels))
        rng = random.Random(channels)
        for _ in range(100):
            try:
                decoded = formats.get("png").decode(forge(data, rng))
            except CorruptImage:
                continue
            assert decoded.shape == picture(dtype, channels).shape


@pytest.mark.parametrize(("name", "data"), SPECIMENS, ids=IDS)
def test_damage_to_the_head_is_refused_by_probe(name, data):
    """Probe raises what decode raises, or says something that an image can be."""
    rng = random.Random(len(data))
    for _ in range(300):
        try:
            shape = formats.get(name).probe(damage(data[: rng.randrange(1, len(data))], rng))
        except REFUSALS.get(name, CorruptImage):
            continue
        assert shape.height > 0
        assert shape.width > 0


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", formats.NAMES)
def test_noise_is_refused(name):
    """With and without the right beginning."""
    rng = random.Random(name)
    start = formats.get(name).encode(picture(), mode="90" if name == "jpeg" else None)[:12]
    for length in (0, 1, 4, 12, 16, 100, 5000):
        for data in (rng.randbytes(length), start[:length] + rng.randbytes(max(0, length - 12))):
            with pytest.raises(REFUSALS.get(name, CorruptImage)):
                formats.get(name).decode(data)
            assert formats.orientation(data) == 1


@pytest.mark.parametrize("name", formats.NAMES)
def test_a_bomb_is_refused_before_it_is_decoded(name):
    """A file that claims more than max_pixels costs nothing."""
    image = np.zeros((2000, 2000), np.uint8)
    data = formats.get(name).encode(image, mode="90" if name == "jpeg" else None)
    with pytest.raises(ImageTooLarge, match="max_pixels"):
        formats.get(name).decode(data, max_pixels=10**6)
