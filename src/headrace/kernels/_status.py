# SPDX-License-Identifier: Apache-2.0
"""What a device found wrong with an image: one number, 0 if nothing, and the error that it stands for.

A kernel that meets a violated MUST raises the image's number to `(LAST_TILE - tile) << REASON_BITS | reason`, so that
of several damaged tiles the first one is named, whichever was decoded first.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from headrace.errors import CorruptImage

REASON_BITS = 4
LAST_TILE = (1 << 23) - 1  # 65535 x 65535 pixels are fewer tiles


class Reason(IntEnum):
    """Which MUST is violated."""

    COLOUR = 1
    PREDICTOR = 2
    SECTION = 3
    UNARY = 4
    WIDTH = 5
    CLASS = 6
    PALETTE = 7
    EXCEPTION = 8
    ESCAPES = 9
    PADDING = 10
    LENGTH = 11


_WORDS = {
    Reason.COLOUR: "a colour code is not defined",
    Reason.PREDICTOR: "a predictor is not defined",
    Reason.SECTION: "a section is longer than the tile",
    Reason.UNARY: "a unary section does not hold the numbers that it should",
    Reason.WIDTH: "a group has too many bits",
    Reason.CLASS: "a block has a class that is not defined",
    Reason.PALETTE: "the palette is not strictly ascending, or too small",
    Reason.EXCEPTION: "the exceptions of the palette are not sound",
    Reason.ESCAPES: "the number of escapes is not the stated one",
    Reason.PADDING: "unused bits are not 0",
    Reason.LENGTH: "the tile does not end where its contents do",
}


def check_status(status: Any) -> None:
    """Raise `CorruptImage` for the first image that a device found damaged.

    Args:
        status: What `decode_batch` was given as `status`. Reading it waits for the device.

    """
    for index, code in enumerate(status.tolist()):
        if code:
            raise error_of(code, index)


def error_of(code: int, index: int) -> CorruptImage:
    """The error that a number other than 0 stands for."""
    tile, reason = LAST_TILE - (code >> REASON_BITS), Reason(code & ((1 << REASON_BITS) - 1))
    error = CorruptImage(f"image {index}: tile {tile}: {_WORDS[reason]}")
    error.index, error.tile = index, tile
    return error


def failures(codes: Sequence[int]) -> list[tuple[int, CorruptImage]]:
    """All damaged images of a batch with their errors, for those who go on without them."""
    return [(index, error_of(code, index)) for index, code in enumerate(codes) if code]
