# SPDX-License-Identifier: Apache-2.0
"""PNG in all its kinds: equal to Pillow where Pillow can hold it, and to the truth where it cannot."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from PIL import Image
from tests.formats.pictures import exif, picture, png_chunk, png_file, saved

from headrace import codec, formats
from headrace.errors import CorruptImage, UnsupportedImage

PNG = formats.get("png")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA"])
def test_pillow_sees_the_same_pixels(mode):
    """Files that Pillow wrote, kept and as RGB."""
    image = Image.fromarray(picture(channels=4)).convert(mode)
    data = saved(image, "PNG")
    kept = np.asarray(image.convert("L") if mode == "1" else image)

    assert np.array_equal(PNG.decode(data), kept)
    assert np.array_equal(PNG.decode(data, color="RGB"), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
@pytest.mark.parametrize("alpha", [False, True])
def test_palettes_are_looked_up(depth, alpha):
    """At every depth, with and without transparent entries; indices on request."""
    colors = 2**depth
    indices = np.random.default_rng(depth).integers(0, colors, (13, 11), dtype=np.uint8)
    image = Image.frombytes("P", (11, 13), indices.tobytes())
    palette = np.random.default_rng(7).integers(0, 256, (colors, 3), dtype=np.uint8)
    image.putpalette(palette.tobytes())
    options = {"transparency": bytes(range(0, colors, 2))} if alpha else {}
    data = saved(image, "PNG", bits=depth, **options)
    decoded = PNG.decode(data)

    assert PNG.probe(data).array == decoded.shape == (13, 11, 4 if alpha else 3)
    assert PNG.probe(data, color="RGB").array == (13, 11, 3)
    assert PNG.probe(data, color="index").array == (13, 11)
    assert np.array_equal(decoded[..., :3], palette[indices])
    assert np.array_equal(PNG.decode(data, color="RGB"), palette[indices])
    assert np.array_equal(PNG.decode(data, color="index"), indices)
    assert np.array_equal(PNG.decode(data, color="index", region=(2, 3, 4, 5)), indices[2:6, 3:8])
    if alpha:
        alphas = np.full(colors, 255)
        alphas[: len(options["transparency"])] = list(options["transparency"])
        assert np.array_equal(decoded[..., 3], alphas[indices])


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_gray_of_few_bits_spans_the_whole_range(depth):
    """The largest value is 255."""
    values = np.arange(8) % 2**depth
    packed = np.packbits(np.unpackbits(values.astype(np.uint8)[:, None], axis=1)[:, -depth:].ravel()).tobytes()
    data = png_file(8, 1, depth, 0, b"\0" + packed)

    assert np.array_equal(PNG.decode(data)[0], values * (255 // (2**depth - 1)))


@pytest.mark.parametrize(("kind", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_interlaced_files_of_16_bit(kind, channels):
    """One pixel is its own first pass."""
    value = picture("uint16", channels, 1, 1)
    data = png_file(1, 1, 16, kind, b"\0" + value.astype(">u2").tobytes(), interlace=1)

    assert np.array_equal(PNG.decode(data), value)


def test_every_filter_of_16_bit_color():
    """Rows that each of the five filters suits best, in files of our own writer."""
    for channels in (2, 3, 4):
        noise = picture("uint16", channels, 130, 9)
        ramp = np.cumsum(np.ones((130, 40, channels), np.uint16), axis=1, dtype=np.uint16)
        image = np.concatenate([noise, ramp, ramp * 3, np.zeros_like(noise)], axis=1)

        assert np.array_equal(PNG.decode(PNG.encode(image, mode="9")), image)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_others_read_what_we_write(dtype, channels):
    """At the levels that differ most in libdeflate, also from arrays that are not contiguous."""
    imagecodecs = pytest.importorskip("imagecodecs")
    image = picture(dtype, channels, height=90, width=120)[::2, ::-1]
    for mode in ("0", "1", "7", "12"):
        assert np.array_equal(imagecodecs.png_decode(PNG.encode(image, mode=mode)), image)


def test_every_target_writes_the_same_bytes():
    """A dataset does not depend on the machine that built it."""
    image = picture(height=70, width=501)
    before = codec.active_target()
    files = set()
    for target in codec.targets():
        codec.use_target(target)
        files.add(PNG.encode(image))
    codec.use_target(before)

    assert len(files) == 1


def test_pillow_reads_our_metadata():
    """An ICC profile, EXIF and XMP, where Pillow looks for them."""
    blocks = {"icc": bytes(range(256)) * 40, "exif": exif(6), "xmp": "<x>é</x>".encode()}
    with Image.open(io.BytesIO(PNG.encode(picture(), metadata=blocks))) as opened:
        opened.load()

        assert opened.info["icc_profile"] == blocks["icc"]
        assert opened.info["exif"].removeprefix(b"Exif\0\0") == blocks["exif"]
        assert opened.info["xmp"] == blocks["xmp"]


@pytest.mark.parametrize(
    ("chunk", "blocks"),
    [
        pytest.param(png_chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(9))), {"icc": bytes(9)}, id="profile"),
        pytest.param(png_chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(9))[:-1]), {}, id="cut profile"),
        pytest.param(png_chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(2**26 + 1), 9)), {}, id="huge profile"),
        pytest.param(png_chunk(b"iCCP", b"x"), {}, id="profile without a stream"),
        pytest.param(png_chunk(b"eXIf", b"1") + png_chunk(b"eXIf", b"2"), {"exif": b"1"}, id="two blocks"),
        pytest.param(png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0en\0t\0text"), {"xmp": b"text"}, id="translated"),
        pytest.param(
            png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(b"t")), {"xmp": b"t"}, id="deflated"
        ),
        pytest.param(png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0"), {}, id="cut text"),
        pytest.param(png_chunk(b"iTXt", b"XML:com.adobe.xmp"), {}, id="keyword only"),
        pytest.param(png_chunk(b"iTXt", b"Comment\0\0\0\0\0text"), {}, id="other text"),
    ],
)
def test_metadata_blocks(chunk, blocks):
    """The first of each kind; damaged and huge ones are omitted."""
    rows = b"".join(b"\0" + row.tobytes() for row in picture())

    assert PNG.metadata(png_file(37, 45, 8, 2, rows, extra=chunk)) == blocks


def test_animations_are_recognized():
    """By an acTL chunk of more than one frame, before the data."""
    for frames, animated in ((1, False), (2, True), (256, True)):
        chunk = png_chunk(b"acTL", frames.to_bytes(4, "big") + bytes(4))
        data = png_file(2, 1, 8, 0, b"\0\0\0", extra=chunk)

        assert formats.has_more_pages(data) is animated
        assert not formats.has_more_pages(data[:36])


def test_a_color_key_is_ignored():
    """As Pillow does: the channels stay as stored."""
    rows = b"".join(b"\0" + row.tobytes() for row in picture())
    data = png_file(37, 45, 8, 2, rows, extra=png_chunk(b"tRNS", bytes(6)))

    assert np.array_equal(PNG.decode(data), picture())


def test_ancillary_chunks_do_not_touch_the_pixels():
    """Gamma, a huge text, a damaged profile."""
    text = png_chunk(b"tEXt", b"Comment\0" + b"a" * 2_000_000)
    extra = png_chunk(b"gAMA", (10000).to_bytes(4, "big")) + text + png_chunk(b"iCCP", b"x\0\0nonsense")
    rows = b"".join(b"\0" + row.tobytes() for row in picture())
    data = png_file(37, 45, 8, 2, rows, extra=extra)

    assert np.array_equal(PNG.decode(data), picture())
    assert PNG.metadata(data) == {}


def test_bytes_after_the_end_are_ignored():
    """As by everyone else."""
    data = saved(picture(), "PNG")

    assert np.array_equal(PNG.decode(data + b"more"), picture())


def test_an_index_beyond_the_palette_is_corrupt():
    """Decoders make different things up; we do not."""
    data = png_file(2, 1, 8, 3, b"\0\0\2", extra=png_chunk(b"PLTE", bytes(6)))
    for color in ("keep", "RGB", "index"):
        with pytest.raises(CorruptImage, match="index"):
            PNG.decode(data, color=color)


@pytest.mark.parametrize(
    "data",
    [
        png_file(2, 1, 8, 3, b"\0\0\1"),
        png_file(2, 1, 16, 3, b"\0\0\1", extra=png_chunk(b"PLTE", bytes(6))),
        png_file(0, 1, 8, 0, b"\0\0"),
        png_file(2, 1, 8, 0, b"\0\0"),
        png_file(2, 1, 8, 0, b"\7\0\0"),
        png_file(2, 1, 8, 0, b"\0\0\0", extra=png_chunk(b"ABCD", b"")),
        png_file(2, 1, 8, 0, b"\0\0\0", extra=png_chunk(b"IHDR", b"")),
        png_file(2, 1, 8, 0, b"\0\0\0", interlace=2),
        png_file(2, 1, 8, 5, b"\0\0\0"),
    ],
    ids=["no palette", "16-bit palette", "no width", "short", "no filter 7", "critical", "two heads", "lace", "kind"],
)
def test_hostile_files_with_honest_checksums_are_corrupt(data):
    """Each breaks one rule of the format."""
    with pytest.raises(CorruptImage):
        PNG.decode(data)


def test_a_checksum_that_does_not_match_is_corrupt():
    """Also that of image data, which Pillow does not check."""
    data = bytearray(saved(picture(), "PNG"))
    data[data.index(b"IEND") - 5] ^= 1
    with pytest.raises(CorruptImage, match="IDAT"):
        PNG.decode(data)


def test_cmyk_is_refused():
    """PNG has no way to say it."""
    with pytest.raises(UnsupportedImage, match="CMYK"):
        PNG.encode(picture(channels=4), metadata={"color": b"CMYK"})


@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation_is_reported(order):
    """From the eXIf chunk; the pixels stay as they are."""
    data = PNG.encode(picture(), metadata={"exif": exif(6, order)})

    assert formats.orientation(data) == 6
    assert np.array_equal(PNG.decode(data), picture())
