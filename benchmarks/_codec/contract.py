# SPDX-License-Identifier: Apache-2.0
"""What a codec is to the benchmark, and the names of those that matter more than the others.

`encoder` and `decoder` do what may be done once (wrap the array, choose options) and return a call without arguments:
only that call is timed. A decoder writes into the array that it is given where its library can, so that no codec pays
for a fresh buffer that it did not need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from benchmarks._codec.images import Pixels

Mode = Literal["fast", "dense"]

HEADRACE: Final[tuple[Mode, ...]] = ("fast", "dense")
REFERENCE: Final = "png"  # Pillow's
SECOND_REFERENCE: Final = "png-imagecodecs"  # where Pillow cannot hold the image

Encode = Callable[[], bytes]
Decode = Callable[[], Any]  # returns the pixels, or something that numpy.asarray turns into them


@dataclass(frozen=True)
class Codec:
    """One way to store an image, and what it can hold."""

    name: str
    label: str
    holds: Callable[[Pixels], bool]
    encoder: Callable[[Pixels], Encode]
    decoder: Callable[[bytes, Pixels], Decode]
    lossless: bool = True
    encodes: bool = True  # False: a decoder only, fed with Pillow's file
