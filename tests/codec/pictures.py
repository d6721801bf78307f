# SPDX-License-Identifier: Apache-2.0
"""Pictures of every kind that the codec must carry: recipes for Hypothesis to vary, and the pixels made from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Image = npt.NDArray[Any]  # [H, W] or [H, W, C], uint8, uint16 or int16
Samples = npt.NDArray[Any]  # [H, W, C], 0 to `top`
Painter = Callable[[np.random.Generator, tuple[int, int, int], int], Samples]

DTYPES = ("uint8", "uint16", "int16")
CHANNELS = (1, 2, 3, 4, 5, 7, 64)
# One and two beside what the format counts in: groups of 4, blocks of 8, lanes of 16 and 32, tiles of 32 to 256.
SIDES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300)


def noise(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    return rng.integers(0, top + 1, shape)


def flat(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    return np.broadcast_to(rng.integers(0, top + 1, shape[2]), shape).copy()


def gradient(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    """Ramps in both directions that wrap around at the top."""
    y, x, c = np.ogrid[: shape[0], : shape[1], : shape[2]]
    down, across = rng.integers(-3, 4, 2) * max(1, top // 255)
    ramps: Samples = y * down + x * across + c * 7 + rng.integers(0, top + 1)
    return ramps % (top + 1)


def colours(count: int) -> Painter:
    """At most `count` different pixels, in random places."""

    def paint(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
        palette = rng.integers(0, top + 1, (count, shape[2]))
        return palette[rng.integers(0, count, shape[:2])]

    return paint


def smooth(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    """Like a photograph: correlated between neighbours and between channels, with a little noise."""
    steps = rng.normal(0, 1, shape)
    field = np.cumsum(np.cumsum(steps, 0), 1) / np.sqrt(1 + np.arange(shape[1]))[None, :, None]
    field = field.mean(2, keepdims=True) * 3 + field * 0.3 + rng.normal(0, 0.7, shape)
    samples: Samples = np.clip(field * max(1, top // 200) + top // 2, 0, top).astype(np.int64)
    return samples


def low_bits(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    """A sensor of three quarters of the bits, in the upper bits: 12 in 16."""
    return smooth(rng, shape, top) & ~(15 if top > 255 else 3)


def sparse_levels(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    """A smooth picture that uses a few of its levels: depth maps, CT slices."""
    levels = np.sort(rng.choice(top + 1, min(top, int(rng.integers(2, 700))), replace=False))
    return levels[smooth(rng, shape, len(levels) - 1)]


def rectangles(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    """A label map of overlapping rectangles."""
    canvas = np.zeros(shape, np.int64)
    for _ in range(int(rng.integers(1, 30))):
        y, x = rng.integers(0, shape[0]), rng.integers(0, shape[1])
        canvas[y : y + rng.integers(1, 80), x : x + rng.integers(1, 80)] = rng.integers(0, top + 1, shape[2])
    return canvas


def voronoi(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    """A label map with slanted borders: each pixel takes the label of the nearest of some points."""
    count = int(rng.integers(2, 20))
    y, x = np.ogrid[: shape[0], : shape[1]]
    points = rng.random((count, 2)) * shape[:2]
    distance = np.stack([(y - py) ** 2 + (x - px) ** 2 for py, px in points])
    labels: Samples = rng.integers(0, top + 1, (count, shape[2]))[distance.argmin(0)]
    return labels


def screen(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    """Rows of glyph-like bitmaps on a plain ground, some of them in a second colour."""
    glyphs = rng.random((12, 8, 6)) < 0.4
    glyphs[:, 6:], glyphs[:, :, 5] = False, False
    rows, columns = -(-shape[0] // 8), -(-shape[1] // 6)
    text = glyphs[rng.integers(0, 12, (rows, columns))] & (rng.random((rows, columns)) < 0.7)[..., None, None]
    ink = text.transpose(0, 2, 1, 3).reshape(rows * 8, columns * 6)[: shape[0], : shape[1]].astype(int)
    ink[shape[0] // 2 :] *= 2
    text_image: Samples = np.array([[top] * shape[2], [0] * shape[2], rng.integers(0, top + 1, shape[2])])[ink]
    return text_image


def checkerboard(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    """The largest steps there are, in cells of one pixel or a few."""
    y, x, c = np.ogrid[: shape[0], : shape[1], : shape[2]]
    return ((y + x + c) // int(rng.integers(1, 5)) % 2) * top


def outlier(rng: np.random.Generator, shape: tuple[int, int, int], top: int) -> Samples:
    """One sample that differs as much as it can."""
    canvas = np.full(shape, rng.integers(0, 2) * top)
    place = tuple(rng.integers(0, side) for side in shape)
    canvas[place] = top - canvas[place]
    return canvas


CONTENTS: dict[str, Painter] = {
    "noise": noise,
    "flat": flat,
    "gradient": gradient,
    **{f"{count} colours": colours(count) for count in (2, 3, 16, 255, 256, 257)},
    "smooth": smooth,
    "low bits": low_bits,
    "sparse levels": sparse_levels,
    "rectangles": rectangles,
    "voronoi": voronoi,
    "screen": screen,
    "checkerboard": checkerboard,
    "outlier": outlier,
}


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a picture's pixels; its repr in a failing test is enough to make them again."""

    height: int
    width: int
    channels: int = 1
    dtype: str = "uint8"
    content: str = "smooth"
    seed: int = 0

    def render(self) -> Image:
        """The pixels, [H, W] or [H, W, C], contiguous and in native byte order."""
        top = 255 if self.dtype == "uint8" else 65535
        shape = (self.height, self.width, self.channels)
        samples = CONTENTS[self.content](np.random.default_rng(self.seed), shape, top)
        assert samples.shape == shape
        assert 0 <= samples.min() <= samples.max() <= top
        image: Image = (samples - (32768 if self.dtype == "int16" else 0)).astype(self.dtype)
        return image[:, :, 0].copy() if self.channels == 1 else image


@st.composite
def recipes(draw: st.DrawFn, samples: int) -> Recipe:
    """Recipes for pictures of at most `samples` samples."""
    channels = draw(st.sampled_from(CHANNELS))
    sides = st.sampled_from(SIDES) | st.integers(1, 300)
    height = min(draw(sides), samples // channels)
    width = min(draw(sides), samples // channels // height)
    return Recipe(
        height,
        width,
        channels,
        draw(st.sampled_from(DTYPES)),
        draw(st.sampled_from(sorted(CONTENTS))),
        draw(st.integers(0, 2**16)),
    )
