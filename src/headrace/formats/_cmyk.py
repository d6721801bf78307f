# SPDX-License-Identifier: Apache-2.0
"""CMYK to RGB as Pillow does it, since that is what training code has always seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    import numpy.typing as npt


def to_rgb(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert uint8 `[H, W, 4]`, 255 meaning full ink, to RGB."""
    height, width, _ = image.shape
    return np.asarray(Image.frombytes("CMYK", (width, height), image.tobytes()).convert("RGB"))
