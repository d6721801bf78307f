# SPDX-License-Identifier: Apache-2.0
"""The status of an image on a device: 0, or a code for the first damaged tile and the reason.

A kernel that finds a violated MUST of the spec raises the status to `(LAST_TILE - tile) << REASON_BITS | reason`. The
maximum names the first damaged tile, whatever the order of decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from headrace.errors import CorruptImage

REASON_BITS = 4
LAST_TILE = (1 << 23) - 1  # an image of 65535 x 65535 pixels has fewer tiles
# The MUSTs of the spec that a tile can violate, counted from 1.
Reason = IntEnum("Reason", "COLOR PREDICTOR SECTION UNARY WIDTH CLASS PALETTE EXCEPTION ESCAPES PADDING LENGTH")

_WORDS = {
    Reason.COLOR: "a color code is not defined",
    Reason.PREDICTOR: "a predictor is not defined",
    Reason.SECTION: "a section exceeds the tile",
    Reason.UNARY: "a unary section has the wrong number of values",
    Reason.WIDTH: "a group has too many bits",
    Reason.CLASS: "a block has a class that is not defined",
    Reason.PALETTE: "the palette is not strictly ascending, or has fewer than two colors",
    Reason.EXCEPTION: "an exception of the palette is not valid",
    Reason.ESCAPES: "the number of escapes differs from the stated one",
    Reason.PADDING: "unused bits are not 0",
    Reason.LENGTH: "the length of the tile does not match its contents",
}


def check_status(status: Any) -> None:
    """Raise `CorruptImage` for the first image that a device found damaged; waits for the device.

    `status` is the tensor that was passed to `decode_batch`.
    """
    for _, error in failures(status.tolist()):
        raise error


def failures(codes: Sequence[int]) -> list[tuple[int, CorruptImage]]:
    """Return the positions and errors of all damaged images of a batch."""
    return [(index, _error_of(code, index)) for index, code in enumerate(codes) if code]


def _error_of(code: int, index: int) -> CorruptImage:
    tile, reason = LAST_TILE - (code >> REASON_BITS), Reason(code & ((1 << REASON_BITS) - 1))
    error = CorruptImage(f"image {index}: tile {tile}: {_WORDS[reason]}")
    error.index, error.tile = index, tile
    return error
