# SPDX-License-Identifier: Apache-2.0
"""What the benchmark needs of a codec, and the names of the reference and of our own.

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
SECOND_REFERENCE: Final = "png-imagecodecs"  # where Pillow cannot store the image

Encode = Callable[[], bytes]
Decode = Callable[[], Any]  # returns the pixels, or something that numpy.asarray turns into them


@dataclass(frozen=True)
class Codec:
    """One way to store an image, and which images it can store."""

    name: str
    label: str
    holds: Callable[[Pixels], bool]
    encoder: Callable[[Pixels], Encode]
    decoder: Callable[[bytes, Pixels], Decode]
    lossless: bool = True
    encodes: bool = True  # False: only decodes, from Pillow's file
