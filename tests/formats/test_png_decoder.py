# SPDX-License-Identifier: Apache-2.0
"""The core's PNG decoder: every color type, depth, interlacing and filter, and every way for a file to be damaged."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from tests.formats.pictures import png_chunk
from tests.formats.png_files import CHANNELS, KINDS, decoded, every_file, wrap

from headrace import codec, formats
from headrace.errors import CorruptImage

PNG = formats.get("png")
ROWS = b"".join(b"\0" + bytes(range(4)) for _ in range(3))
STREAM = zlib.compress(ROWS)
IMAGE = np.tile(np.arange(4, dtype=np.uint8), (3, 1))


def is_corrupt(data):
    try:
        PNG.decode(data)
    except CorruptImage:
        return True
    return False


@pytest.fixture(params=codec.targets())
def target(request):
    """Each SIMD target in turn."""
    before = codec.active_target()
    codec.use_target(request.param)
    yield request.param
    codec.use_target(before)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize(("kind", "depth"), KINDS)
def test_every_filter_and_interlacing(kind, depth):
    """Images and random regions of them, in new arrays and in parts of larger ones."""
    rng = np.random.default_rng(depth)
    for samples, data in every_file(kind, depth):
        image = decoded(samples, kind, depth)
        height, width = image.shape[:2]
        top, left = int(rng.integers(height)), int(rng.integers(width))
        rows, columns = int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))
        frame = np.full((height + 2, *image.shape[1:]), 77, image.dtype)
        part = PNG.decode(data, region=(top, left, rows, columns))
        returned = PNG.decode(data, out=frame[1:-1])

        assert np.array_equal(PNG.decode(data), image)
        assert np.array_equal(part, image[top : top + rows, left : left + columns])
        assert np.array_equal(returned, image)
        assert np.all(frame[[0, -1]] == 77)
        if kind == 3:
            assert np.array_equal(PNG.decode(data, color="index"), samples[..., 0])


@pytest.mark.parametrize("kind", CHANNELS)
def test_a_file_truncated_at_any_byte_is_corrupt(kind):
    """Of each color type two depths, interlaced or not: twenty files in all."""
    for depth in [depth for of_kind, depth in KINDS if of_kind == kind][-2:]:
        files = [data for _, data in every_file(kind, depth)]
        for data in (files[-8], files[-1]):  # of 13 x 11 pixels
            accepted = [length for length in range(len(data)) if not is_corrupt(data[:length])]
            assert accepted == []


@pytest.mark.parametrize(
    "streams",
    [
        pytest.param([STREAM[:1], b"", STREAM[1:7], STREAM[7:], b""], id="several chunks, some of them empty"),
        pytest.param([STREAM + b"more"], id="bytes behind the stream"),
        pytest.param([STREAM, b"more"], id="a chunk behind the stream"),
        pytest.param([zlib.compress(ROWS + b"\0")], id="one byte behind the last row"),
        pytest.param([zlib.compress(ROWS + bytes(300_000))], id="many bytes behind the last row"),
        pytest.param([zlib.compress(ROWS + bytes(range(256)) * 500, 0)], id="stored blocks behind the last row"),
        pytest.param([STREAM[:-2]], id="half of the checksum"),
        pytest.param([b"\x08\x1d" + STREAM[2:]], id="a small window"),
    ],
)
def test_streams_that_everyone_accepts(streams):
    """Pillow and libspng decode these files, and so do we."""
    assert np.array_equal(PNG.decode(wrap(4, 3, 0, 8, streams)), IMAGE)


def test_a_stream_that_was_flushed_but_not_ended_is_accepted():
    """All rows are there; only the empty last block is missing."""
    compressor = zlib.compressobj()
    stream = compressor.compress(ROWS) + compressor.flush(zlib.Z_SYNC_FLUSH)

    assert np.array_equal(PNG.decode(wrap(4, 3, 0, 8, [stream])), IMAGE)
    assert np.array_equal(PNG.decode(wrap(4, 3, 0, 8, [stream[:5], stream[5:]])), IMAGE)
    with pytest.raises(CorruptImage, match="truncated"):
        PNG.decode(wrap(4, 4, 0, 8, [stream]))


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(STREAM[:-1] + bytes([STREAM[-1] ^ 1]), id="checksum"),
        pytest.param(zlib.compress(ROWS[:-1]), id="last byte missing"),
        pytest.param(b"", id="empty"),
        pytest.param(STREAM[:1], id="one byte"),
        pytest.param(STREAM[2:], id="without its head"),
        pytest.param(b"\x88\x1c" + STREAM[2:], id="window"),
        pytest.param(b"\x78\x9d" + STREAM[2:], id="head's checksum"),
        pytest.param(b"\x77\x85" + STREAM[2:], id="method"),
        pytest.param(b"\x78\xbb\0\0\0\0" + STREAM[2:], id="dictionary"),
        pytest.param(STREAM[:2] + b"\xff" * 20, id="block type"),
        pytest.param(zlib.compress(b"\5" + ROWS[1:]), id="filter"),
    ],
)
def test_damaged_streams_are_corrupt(stream):
    """Each breaks one rule of zlib or PNG, with honest chunks."""
    with pytest.raises(CorruptImage):
        PNG.decode(wrap(4, 3, 0, 8, [stream]))


@pytest.mark.parametrize("strategy", [zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_DEFAULT_STRATEGY])
def test_a_stream_cut_within_a_block_is_corrupt(strategy):
    """With honest chunks, wherever it is cut: the missing pixels must not be made up."""
    for seed in range(20):
        image = np.random.default_rng(seed).integers(0, 256, (2, 6), dtype=np.uint8)
        compressor = zlib.compressobj(9, zlib.DEFLATED, 15, 9, strategy)
        stream = compressor.compress(b"".join(b"\0" + row.tobytes() for row in image)) + compressor.flush()
        accepted = [length for length in range(len(stream) - 4) if not is_corrupt(wrap(6, 2, 0, 8, [stream[:length]]))]

        assert accepted == []


@pytest.mark.parametrize("position", [8 + 25, -12], ids=["before the palette", "behind the data"])
def test_misplaced_transparency_is_corrupt(position):
    """The chunks before the data say how many channels there are, and all that `probe` reads."""
    data = wrap(4, 3, 3, 8, [STREAM])
    with pytest.raises(CorruptImage, match="tRNS"):
        PNG.decode(data[:position] + png_chunk(b"tRNS", b"\x10") + data[position:])


def test_a_region_ends_inflating_after_its_last_row():
    """Damage below a region, with honest chunks, is not seen; damage within it is."""
    rng = np.random.default_rng(0)
    rows = np.concatenate((np.zeros((900, 1), np.uint8), rng.integers(0, 256, (900, 600), dtype=np.uint8)), axis=1)
    stream = bytearray(zlib.compress(rows.tobytes(), 0))  # stored blocks of at most 65535 bytes
    stream[-60_000:] = bytes(60_000)
    data = wrap(600, 900, 0, 8, [bytes(stream)])
    with pytest.raises(CorruptImage):
        PNG.decode(data)
    part = PNG.decode(data, region=(10, 20, 300, 400))

    assert np.array_equal(part, rows[10:310, 21:421])


def test_huge_claims_take_no_memory():
    """A file of 100 bytes cannot have the data of 2^30 pixels, and says so before anything is allocated."""
    with pytest.raises(CorruptImage, match="truncated"):
        PNG.decode(wrap(2**15, 2**15, 6, 16, [STREAM]))
