# SPDX-License-Identifier: Apache-2.0
"""The manners of the Python surface: what it takes, what it refuses and with which words."""

from __future__ import annotations

import array
import copy
import dataclasses
import mmap
import pickle
import threading

import numpy as np
import pytest
from PIL import Image

import headrace
from headrace import _core, codec, errors

RNG = np.random.default_rng(7)
IMAGE = RNG.integers(0, 256, (40, 70, 3), np.uint8)
ENCODED = headrace.encode(IMAGE, mode="fast")


def buffers(tmp_path):
    path = tmp_path / "image.hri"
    path.write_bytes(ENCODED)
    with path.open("rb") as file:
        yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    yield from (bytearray(ENCODED), memoryview(ENCODED), np.frombuffer(ENCODED, np.uint8), array.array("B", ENCODED))


def test_any_buffer_decodes(tmp_path):
    """Bytes may lie in whatever exports a contiguous buffer."""
    for data in buffers(tmp_path):
        np.testing.assert_array_equal(headrace.decode(data), IMAGE)
        assert headrace.inspect(data).n_bytes == len(ENCODED)


@pytest.mark.parametrize("call", [headrace.decode, headrace.inspect, lambda data: codec.decode_many([data])])
@pytest.mark.parametrize(("data", "words"), [("image.hri", "read_bytes"), (memoryview(ENCODED)[::2], "contiguous")])
def test_what_is_no_buffer_is_a_type_error_with_a_remedy(call, data, words):
    """A path is the likeliest mistake, and the message says what to do instead."""
    with pytest.raises(TypeError, match=words):
        call(data)


def test_one_image_is_not_many():
    """Bytes are iterable, but not a list of images."""
    with pytest.raises(TypeError, match="use decode"):
        codec.decode_many(ENCODED)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((4, 4)), "float64.*round"),
        (np.zeros((4, 4), bool), "bool.*astype"),
        (np.zeros((4, 4), np.int64), "int64.*astype"),
        (np.zeros((4, 4), object), "object"),
        (np.zeros(4, np.uint8), r"\[4\]"),
        (np.zeros((2, 4, 4, 3), np.uint8), "one by one"),
        (np.zeros((0, 4), np.uint8), "at least one pixel"),
        (np.zeros((4, 4, 0), np.uint8), "at least one pixel"),
        (np.zeros((3, 80, 80), np.uint8), "transpose"),
        (np.broadcast_to(np.uint8(0), (65536, 1)), "65535"),
        ("image.png", "array of numbers"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_with_a_remedy(image, words):
    """Nothing is rounded, cut or guessed."""
    with pytest.raises(errors.UnsupportedImage, match=words):
        headrace.encode(image)


@pytest.mark.parametrize("dtype", [">u2", ">i2", "<u2", "<i2"])
def test_byte_order_is_converted(dtype):
    """Big-endian samples are the same numbers."""
    image = RNG.integers(0, 30000, (9, 11)).astype(dtype)
    decoded = headrace.decode(headrace.encode(image))

    assert decoded.dtype == image.dtype.newbyteorder("=")
    np.testing.assert_array_equal(decoded, image)


def test_single_channel_axis_is_dropped():
    """`[H, W, 1]` decodes as `[H, W]`, and is the same file."""
    encoded = headrace.encode(IMAGE[..., :1])

    assert encoded == headrace.encode(np.ascontiguousarray(IMAGE[..., 0]))
    assert headrace.decode(encoded).shape == (40, 70)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "tight"}, ValueError),
        ({"mode": 1}, ValueError),
        ({"threads": -1}, ValueError),
        ({"threads": 1.5}, TypeError),
        ({"metadata": {"": b""}}, errors.InvalidMetadata),
        ({"metadata": {"k" * 256: b""}}, errors.InvalidMetadata),
        ({"metadata": {"\ud800": b""}}, errors.InvalidMetadata),
        ({"metadata": {"key": 1}}, TypeError),
        ({"metadata": {1: b""}}, TypeError),
    ],
)
def test_bad_options_of_encode_are_refused(options, error):
    """Each option is checked, and none is ignored."""
    with pytest.raises(error):
        headrace.encode(IMAGE, **options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"region": (0, 0, 41, 1)}, errors.InvalidRegion),
        ({"region": (0, 0, 0, 1)}, errors.InvalidRegion),
        ({"region": (-1, 0, 1, 1)}, errors.InvalidRegion),
        ({"region": (0, 2**70, 1, 1)}, errors.InvalidRegion),
        ({"region": (0, 0, 1)}, TypeError),
        ({"region": (0, 0, 1, 1.0)}, TypeError),
        ({"region": 5}, TypeError),
        ({"threads": -1}, ValueError),
        ({"threads": "all"}, TypeError),
        ({"max_pixels": 40 * 70 - 1}, errors.ImageTooLarge),
        ({"max_pixels": -1}, ValueError),
        ({"out": [1, 2]}, TypeError),
        ({"out": np.empty((40, 70), np.uint8)}, errors.InvalidOutput),
        ({"out": np.empty((40, 70, 3), np.int8)}, errors.InvalidOutput),
        ({"out": np.empty((70, 40, 3), np.uint8).transpose(1, 0, 2)}, errors.InvalidOutput),
        ({"out": np.broadcast_to(np.uint8(0), (40, 70, 3))}, errors.InvalidOutput),
        ({"out": np.lib.stride_tricks.as_strided(np.empty((1, 70, 3), np.uint8), (40, 70, 3), (0, 3, 1))}, ValueError),
    ],
)
def test_bad_options_of_decode_are_refused(options, error):
    """Each option is checked before a pixel is written."""
    with pytest.raises(error):
        headrace.decode(ENCODED, **options)


def test_numpy_integers_are_integers():
    """Regions often come out of NumPy."""
    region = np.array([1, 2, 3, 4])

    np.testing.assert_array_equal(headrace.decode(ENCODED, region=region, threads=np.int32(1)), IMAGE[1:4, 2:6])


def test_a_huge_limit_is_no_limit():
    """Integers beyond 64 bit are allowed where they make sense."""
    np.testing.assert_array_equal(headrace.decode(ENCODED, max_pixels=10**30), IMAGE)


def test_errors_are_also_what_python_expects():
    """Code that knows nothing of Headrace catches ValueError; damage says where it is, and survives a pickle."""
    damaged = bytearray(ENCODED)
    damaged[-1] ^= 1
    with pytest.raises(ValueError, match="tile") as caught:
        headrace.decode(damaged)
    error = pickle.loads(pickle.dumps(caught.value))

    assert isinstance(error, errors.CorruptImage)
    assert isinstance(error, errors.HeadraceError)
    assert error.tile == 2 * -(-70 // headrace.inspect(ENCODED).tile_shape[1]) - 1
    assert 0 < error.offset < len(ENCODED)
    assert error.index is None


def test_decode_many_names_the_image_that_is_at_fault():
    """The index is in the message and on the error, whatever the fault is."""
    for bad, options in ((ENCODED[:9], {}), (ENCODED, {"regions": [None, None, (0, 0, 99, 99)]})):
        with pytest.raises(errors.HeadraceError, match=r"^image 2: ") as caught:
            codec.decode_many([ENCODED, ENCODED, bad], **options)
        assert caught.value.index == 2


def test_image_info_is_a_frozen_value():
    """It compares by value, cannot be changed, and copies."""
    info = headrace.inspect(headrace.encode(IMAGE, mode="fast", metadata={"note": "naïve", "icc": b"\0"}))

    assert (info.width, info.height, info.channels, info.mode, info.shape) == (70, 40, 3, "fast", (40, 70, 3))
    assert info.dtype == np.uint8
    assert info.tile_shape[0] == 32
    assert dict(info.metadata) == {"note": "naïve".encode(), "icc": b"\0"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.width = 1
    with pytest.raises(TypeError):
        info.metadata["note"] = b""
    assert copy.copy(info) == info


def test_targets_can_be_listed_and_forced():
    """Scalar code is always there, the fastest target is the default, and an unknown one is refused by name."""
    assert codec.targets()[0] == "scalar"
    for name in codec.targets():
        codec.use_target(name)
        assert codec.active_target() == name
    with pytest.raises(errors.UnknownTarget, match=r"altivec.*scalar"):
        codec.use_target("altivec")


def test_threads_of_python_may_decode_the_same_bytes():
    """Nothing is shared between calls."""
    wrong = []

    def check():
        wrong.extend(n for n in range(20) if not np.array_equal(headrace.decode(ENCODED, threads=2), IMAGE))

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_pillow_palettes_are_not_taken_for_gray():
    """The indices of a palette image are not its pixels."""
    with pytest.raises(errors.UnsupportedImage, match="palette"):
        headrace.encode(Image.new("P", (4, 4)))
    np.testing.assert_array_equal(headrace.decode(headrace.encode(Image.fromarray(IMAGE))), IMAGE)


@pytest.mark.parametrize("target", headrace.codec.targets())
def test_every_target_takes_the_same_checksums(target):
    """Whether by tables, instruction or products: CRC-32C, over the lengths at which the ways to take it change."""
    headrace.codec.use_target(target)
    data = np.random.default_rng(5).integers(0, 256, 4000, np.uint8).tobytes()

    assert _core.crc32c(b"123456789", 0) == 0xE3069283  # the check value of the standard
    for n in (0, 1, 7, 8, 255, 511, 512, 513, 767, 768, 769, 1024, 2303, 2304, 4000):
        whole = _core.crc32c(data[:n], 0)
        assert whole == _core.crc32c(data[n // 3 : n], _core.crc32c(data[: n // 3], 0))
        headrace.codec.use_target("scalar")
        assert whole == _core.crc32c(data[:n], 0)
        headrace.codec.use_target(target)
